"""NVIDIA FLARE stays optional: without it everything else works, and what needs it says how to install it."""

from __future__ import annotations

import subprocess
import sys

HIDE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "nvflare" or name.startswith("nvflare."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def without_flare(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", HIDE + code], capture_output=True, text=True, check=False, timeout=120)


def test_scapegoat_and_its_rules_import_without_flare():
    ended = without_flare(
        "import scapegoat as sg, torch\n"
        "import scapegoat.integrations.nvflare\n"
        "print(int(sg.aggregation.median(torch.ones(3, 4)).kept.sum()))"
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "3"


def test_an_aggregator_says_so_too():
    ended = without_flare(
        "from scapegoat.errors import InputError\n"
        "try:\n"
        "    from scapegoat.integrations.nvflare import AngularTrimmedMean\n"
        "except ImportError as error:\n"
        "    print(error, isinstance(error, InputError))"
    )
    assert "pip install 'scapegoat-fl[nvflare]' True" in ended.stdout


def test_the_command_says_in_one_line_how_to_install_it():
    ended = without_flare(
        "from scapegoat.cli import main; main(['nvflare', 'audit', '--job', 'x.py:f', '--material', 'm:f'])"
    )
    assert ended.returncode == 2
    assert ended.stderr.strip() == (
        "scapegoat: NVIDIA FLARE is not installed; install it with: pip install 'scapegoat-fl[nvflare]'"
    )


def test_other_commands_and_the_help_do_not_miss_it():
    ended = without_flare("from scapegoat.cli import main; main(['nvflare', 'audit', '--help'])")
    assert ended.returncode == 0
    assert "--material" in ended.stdout


def test_the_command_imports_neither_torch_nor_flare_for_its_help():
    code = (
        "import sys, contextlib\nfrom scapegoat.cli import main\n"
        "with contextlib.suppress(SystemExit):\n    main(['nvflare', 'audit', '--help'])\n"
        "print(sorted({'torch', 'nvflare'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert ended.stdout.rstrip().endswith("[]")
