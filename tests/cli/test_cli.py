import json
import subprocess
import sys

import click
import pytest
import typer

from scapegoat.cli import app

SMALL = [
    "--set", "data={name: hospital, records: 700, features: 60, classes: 5, validation: 40}",
    "--set", "model={name: mlp, hidden: [16]}",
    "--set", "federation={clients: 5, rounds: 3, batch_size: 16}",
    "--set", "attack={name: passive, targets: 40, mask: 30}",
]  # fmt: skip


def scapegoat(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "scapegoat", *arguments], capture_output=True, text=True, timeout=300, **options
    )


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["data", "--help"], ["--version"]])
def test_help_does_not_wait_for_torch(arguments):
    code = (
        "import sys\nfrom scapegoat.cli import app\n"
        f"try:\n    app({arguments!r})\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_json_prints_the_summary_and_nothing_else():
    done = scapegoat("run", *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["membership"]["accuracy_best"] >= 0.5
    assert done.stderr == ""


def test_a_run_for_people_names_what_leaked_and_where_it_is_kept(tmp_path):
    done = scapegoat("run", *SMALL, "--out", str(tmp_path / "kept"))
    assert done.returncode == 0, done.stderr
    assert "attack accuracy, best round" in done.stdout
    assert len(list((tmp_path / "kept" / "runs").iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--set", "federation.rounds=-1"], "federation.rounds"),
        (["run", "absent.yaml"], "absent.yaml"),
        (["run", "--set", "defense=nothing"], "'nothing' is not a defense"),
        (["list", "dragons"], "dragons"),
        (["run", "--set", "data=npz:absent.npz"], "absent.npz"),
        (["run", "--out", "a_file/runs"], "a_file is a file"),
        (["audit", "--out", "a_file"], "a_file is a file"),
        (["audit", "--jobs", "0"], "jobs: 0"),
        (["run", "--set", "federation=5", "--set", "federation.rounds=2"], "federation is 5, which has no keys"),
        (["run", "--nonsense"], "No such option '--nonsense' (see `scapegoat run --help`)"),
        (["bananas"], "No such command 'bananas' (see `scapegoat --help`)"),
        (["report"], "Missing argument 'DIR'"),
        (["sweep", "main-c08", "--seeds", "many"], "'many' is not a valid integer"),
        (
            ["run", "--set", "attack={name: fedpoisonmia, alpha: much}"],
            "attack.alpha: 'much' is not allowed: input should be 'optimize', or input should be a valid number",
        ),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(tmp_path, arguments, says):
    (tmp_path / "a_file").write_text("not a folder")
    done = scapegoat(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a_file"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("attacks", "passive"),
        ("defenses", "fedavg"),
        ("protections", "weight_decay"),
        ("data", "hospital"),
        ("models", "mlp"),
        ("partitions", "iid"),
    ],
)
def test_listings_show_every_name_with_its_options(kind, name):
    done = scapegoat("list", kind, "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows[name]["summary"]
    assert scapegoat("list", kind).returncode == 0


def commands(group, path=()):
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


def test_no_help_text_has_stray_backslashes():
    every = list(commands(typer.main.get_command(app)))
    assert len(every) > 8
    for path, command in every:
        text = command.get_help(click.Context(command, info_name=" ".join(("scapegoat", *path))))
        assert "\\" not in text, path


def test_help_explains_every_argument_and_option():
    for path, command in commands(typer.main.get_command(app)):
        said = " ".join((command.help or "").split())
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                assert (parameter.metavar or parameter.name).upper() in said.replace(",", "").split(), path
            else:
                assert parameter.help, path
