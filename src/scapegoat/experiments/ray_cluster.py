"""A Ray cluster: how to reach it, and how its workers come to see the world as the driver does."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scapegoat.errors import InputError
from scapegoat.experiments.foreign import foreign_modules
from scapegoat.extending.plugins import load_plugins


def surroundings(root: str | Path | None) -> dict[str, Any]:
    """What the driver sees: its folder, its search path, its data, its plugins."""
    return {
        "root": None if root is None else str(Path(root).absolute()),
        "data": os.environ.get("SCAPEGOAT_DATA"),
        "folder": os.getcwd(),
        "path": sys.path,
        "modules": foreign_modules(),
    }


def settle_in(around: dict[str, Any]) -> None:
    """Look at the world as the driver does."""
    if os.path.isdir(around["folder"]):
        os.chdir(around["folder"])
    sys.path += [entry for entry in around["path"] if entry not in sys.path]
    if around["data"] is not None:
        os.environ["SCAPEGOAT_DATA"] = around["data"]
    load_plugins(around["modules"])


def import_ray() -> Any:
    """The package, or an InputError that says how to install it."""
    # Said before the import: no telemetry, and no advice about graphics cards on the terminal.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise InputError("--ray needs the package ray: pip install 'scapegoat-fl[ray]' (or use --jobs)") from None
    return ray


@contextlib.contextmanager
def connected(ray: Any, address: str, jobs: int) -> Iterator[None]:
    """A connection to the cluster; one that was there before stays."""
    if ray.is_initialized():
        yield
        return
    try:
        if address == "local":
            options = {"num_cpus": max(jobs, 2), "include_dashboard": False}
        else:
            options = {}
        with _beside_the_package():
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except Exception as error:
        raise InputError(
            f"--ray {address}: no cluster answers there ({first_line(error)}); `ray start --head` starts one, "
            "`--ray local` is a cluster on this machine alone"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _beside_the_package() -> Iterator[None]:
    """Be in the folder that holds the package: Ray puts the driver's current folder first on its workers' search path.

    In the user's own, a file `pyarrow.py` would be run by every worker in place of the library.
    """
    here = os.getcwd()
    os.chdir(Path(__file__).parents[2])
    try:
        yield
    finally:
        os.chdir(here)


def first_line(error: BaseException) -> str:
    """What went wrong, without the stack."""
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]
