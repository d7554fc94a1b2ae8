"""What the processes of an audit find in their environment: what they need to run, and nobody's tokens."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterable, Mapping

from scapegoat.errors import InputError

# Where things are and how many threads to take. Whatever else an app needs is named by the person who starts the audit.
_NAMES = frozenset(
    [
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR", "TEMP", "TMP"),
        *("SYSTEMROOT", "WINDIR", "COMSPEC", "PATHEXT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
        *("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("HF_HOME", "KERAS_HOME", "SCAPEGOAT_DATA"),
    ]
)
_BEGINNINGS = ("LC_", "XDG_", "OMP_", "MKL_", "OPENBLAS_", "CUDA_", "NCCL_", "ROCR_", "HIP_", "TORCH_", "PYTORCH_")
_SECRET = re.compile("TOKEN|SECRET|PASSW|CREDENTIAL|KEY|AUTH", re.IGNORECASE)


def minimal(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The part of an environment (default: this process's) that says where things are."""
    source = os.environ if given is None else given
    return {
        name: value
        for name, value in source.items()
        if name in _NAMES or (name.startswith(_BEGINNINGS) and not _SECRET.search(name))
    }


def passed(names: Iterable[str]) -> dict[str, str]:
    """The variables that the user names; one that is not set is refused."""
    found = {}
    for name in names:
        if name not in os.environ:
            raise InputError(f"--env {name}: is not set in this environment; name a variable that is")
        found[name] = os.environ[name]
    return found


def is_loopback(host: str) -> bool:
    """Every address that the name stands for is a loopback address."""
    try:
        found = {str(info[4][0]).split("%")[0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(address).is_loopback for address in found)
