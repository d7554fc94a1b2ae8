import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scapegoat.aggregation import registry as rules
from scapegoat.cli._components import component
from scapegoat.crafting.contract import Attack
from scapegoat.crafting.contract import registry as attacks
from scapegoat.errors import InputError
from scapegoat.experiments.spec import Spec, override_key, parse


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ({"seeed": 1}, ["seeed", "did you mean 'seed'?"]),
        ({"federation": {"client": 3}}, ["federation.client", "did you mean 'clients'?"]),
        ({"attack": {"name": "fedpoisonmia", "gama": 0.1}}, ["attack.gama", "gamma"]),
        ({"attack": "fedpoison"}, ["attack.name", "'fedpoison'", "did you mean 'fedpoisonmia'?"]),
        ({"defense": {"name": "atm", "trim": 4}}, ["defense.trim", "4", "8"]),
        ({"defense": {"trim": 1}}, ["defense.name", "missing", "atm"]),
        ({"federation": {"clients": 3, "malicious": 3}}, ["federation.malicious", "3", "0 to 2"]),
        ({"federation": {"fraction": 0}}, ["federation.fraction", "0", "greater than 0"]),
        ({"federation": {"fraction": 1.5}}, ["federation.fraction", "1.5", "less than or equal to 1"]),
        ({"federation": {"server": {"lr": -1}}}, ["federation.server.lr", "-1"]),
        ({"federation": {"partition": {"name": "label_bias", "beta": 2}}}, ["federation.partition.beta", "2"]),
        ({"federation": {"schedule": "later"}}, ["federation.schedule.name", "'later'", "async"]),
        ({"federation": 7}, ["federation", "7", "mapping"]),
        ({"attack": {"name": "passive", "targets": 1}}, ["attack.targets", "1", "2"]),
        ({"data": "hospitl"}, ["data.name", "did you mean 'hospital'?"]),
        ({"data": 3}, ["data", "3"]),
        ({"model": {"name": "mlp", "hidden": [0]}}, ["model.hidden", "0"]),
        ({"evaluation": {"every": 0}}, ["evaluation.every", "0"]),
        ({"federation": {"fraction": 1e-11}}, ["federation.fraction", "1e-11", "picks nobody", "0.1"]),
        (
            {"federation": {"rounds": 3, "schedule": {"name": "async", "buffer": 100}}},
            ["federation.schedule.buffer", "100", "1 to 24"],
        ),
    ],
)
def test_a_wrong_key_or_value_is_named_with_what_is_allowed(spec, parts):
    with pytest.raises(InputError) as error:
        parse(spec)
    message = str(error.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, message


def test_a_rule_that_needs_several_updates_refuses_a_buffer_of_one():
    with pytest.raises(InputError, match="trim"):
        parse({"defense": "atm", "federation": {"schedule": {"name": "async", "buffer": 1}}})


def test_every_rule_that_needs_server_data_is_refused_where_there_is_none():
    needy = []
    for name in rules.names():
        try:
            rules.get(name)(torch.randn(12, 5))
        except InputError as error:
            if "of the server's own" in str(error):
                needy.append(name)
    assert needy == ["fang", "fltrust"]
    for defense in [*needy, [{"name": "norm_clipping"}, {"name": needy[0]}]]:
        with pytest.raises(InputError, match=r"data\.validation: 0 .*1 or more"):
            parse({"defense": defense, "data": {"name": "hospital", "validation": 0}})
        parse({"defense": defense, "data": {"name": "hospital", "validation": 1}})


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize(
    ("key", "spec"),
    [
        ("federation.local.lr", lambda n: {"federation": {"local": {"name": "epochs", "lr": n}}}),
        ("federation.partition.alpha", lambda n: {"federation": {"partition": {"name": "dirichlet", "alpha": n}}}),
        ("attack.alpha_max", lambda n: {"attack": {"name": "fedpoisonmia", "alpha_max": n}}),
        ("model.options.width", lambda n: {"model": {"name": "own:make", "options": {"width": n}}}),
    ],
)
def test_a_number_that_json_cannot_write_is_refused_by_its_key(key, spec, number):
    with pytest.raises(InputError, match=rf"{key}: {number} .*finite"):
        parse(spec(number))


@pytest.mark.parametrize(
    "override",
    [
        "federation.local={name: epochs, lr: inf}",
        "federation.partition={name: dirichlet, alpha: inf}",
        "attack.alpha_max=inf",
    ],
)
def test_infinity_written_as_text_is_refused_too(override):
    with pytest.raises(InputError, match=r"'inf' .*finite"):
        parse({}, [override])


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({1: 2}, "^1: .*known: seed"),
        ({"federation": {1: 2}}, r"^federation\.1: .*known: clients"),
        ({"data": {"name": "hospital", 1: 2}}, r"^data\.1: .*known: .*records"),
        ({"federation": {"server": {True: 2}}}, r"^federation\.server\.True: .*known: optimizer"),
    ],
)
def test_a_key_that_is_no_text_is_refused_with_its_place_and_the_known_ones(spec, says):
    with pytest.raises(InputError, match=says):
        parse(spec)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seed: 1\ndata: hospital\nseed: 2", "line 3: the key 'seed' is given twice"),
        ("federation: {rounds: 2, 'rounds': 3}", "line 1: the key 'rounds' is given twice"),
        ("seed: " + "[" * 3000 + "]" * 3000, "nested too deeply"),
        ("seed: &own [*own]", "recursive"),
        ("seed: 0x_", "'0x_' cannot be read as int"),
        ("seed: !!bool 2", "'2' cannot be read as bool"),
        ("seed: " + "9" * 5000, "cannot be read as int"),
        ("seed: \0", "special characters"),
    ],
)
def test_yaml_that_means_nothing_is_refused_in_a_file_and_on_the_command_line(tmp_path, text, says):
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=says) as of_file:
        parse(path)
    assert str(of_file.value).startswith(f"{path}: ")
    flow = "{" + text.replace("\n", ", ") + "}"
    with pytest.raises(InputError, match=says.removeprefix("line 3: ")) as of_override:
        parse({}, [f"data={flow}"])
    assert str(of_override.value).startswith("--set ")
    with pytest.raises(InputError, match=says.removeprefix("line 3: ")) as of_option:
        component(flow)
    for error in (of_file, of_override, of_option):
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("date", ["2024-13-45", "2024-01-31", "!!timestamp 2024-13-45"])
def test_a_date_is_text_like_any_other(tmp_path, date):
    path = tmp_path / "spec.yaml"
    path.write_text(f"data: {date}")
    with pytest.raises(InputError, match=r"data\.name: '2024-.*hospital"):
        parse(path)
    with pytest.raises(InputError, match=r"seed: '2024-.*integer"):
        parse({}, [f"seed={date}"])


def test_a_merged_mapping_may_be_overridden(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text("federation: {<<: {rounds: 3, clients: 5}, rounds: 4}")
    assert (parse(path).federation.rounds, parse(path).federation.clients) == (4, 5)


def test_the_hash_depends_on_every_value_and_not_on_how_it_was_written():
    base = parse({})
    assert base.hash == parse({"data": "hospital", "seed": 0}).hash
    assert base.hash == parse(json.loads(json.dumps(base.canonical()))).hash
    others = [
        parse({"seed": 1}),
        parse({"attack": {"name": "fedpoisonmia", "gamma": 0.2}}),
        parse({"defense": {"name": "atm", "trim": 2}}),
        parse({"federation": {"batch_size": 32}}),
        parse({"threads": 2}),
    ]
    assert len({base.hash, *(o.hash for o in others)}) == 1 + len(others)


@given(
    st.fixed_dictionaries(
        {
            "seed": st.integers(0, 100),
            "attack": st.sampled_from(["passive", "agrevader", {"name": "fedpoisonmia", "gamma": 0.3}]),
            "defense": st.sampled_from(["fedavg", {"name": "atm", "trim": 2}, [{"name": "norm_clipping"}, "atm"]]),
            "federation": st.fixed_dictionaries(
                {"rounds": st.integers(1, 9), "schedule": st.sampled_from(["sync", {"name": "async", "tau_max": 2}])}
            ),
        }
    )
)
def test_a_spec_survives_the_round_trip_through_json(plain):
    spec = parse(plain)
    again = Spec(**json.loads(json.dumps(spec.canonical())))
    assert again.hash == spec.hash
    assert again == spec


def test_overrides_reach_nested_keys_and_a_new_name_drops_the_old_options():
    plain = override_key({"attack": {"name": "fedpoisonmia", "gamma": 0.2}}, "attack.name=passive")
    assert plain == {"attack": {"name": "passive"}}
    spec = parse({"defense": "atm"}, ["defense.trim=2", "federation.rounds=7", "federation.server.lr=1e-3"])
    assert (spec.defense.trim, spec.federation.rounds, spec.federation.server.lr) == (2, 7, 1e-3)


def test_an_override_of_an_option_applies_to_the_default_component():
    spec = parse({}, ["attack.targets=100", "federation.local.name=epochs", "federation.local.epochs=3"])
    assert (spec.attack.name, spec.attack.targets, spec.federation.local.epochs) == ("fedpoisonmia", 100, 3)


@pytest.mark.parametrize("override", ["federation.rounds", "=3", "a..b=3", "seed=[1"])
def test_a_malformed_override_is_refused(override):
    with pytest.raises(InputError, match="--set"):
        parse({}, [override])


@pytest.mark.parametrize(
    ("text", "says"), [("a: [1", "line"), ("- 1\n- 2", "mapping"), ("seed: !!python/object/apply:os.getcwd []", "YAML")]
)
def test_a_file_that_is_no_spec_is_refused(tmp_path, text, says):
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        parse(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        parse(tmp_path / "absent.yaml")


def test_local_epochs_average_the_models_unless_told_otherwise():
    assert parse({"federation": {"local": "epochs"}}).federation.server.optimizer == "sgd"
    assert parse({"federation": {"local": "epochs"}}).federation.server.lr == 1.0
    told = parse({"federation": {"local": "epochs", "server": {"optimizer": "adam"}}})
    assert told.federation.server.optimizer == "adam"


def test_a_new_attack_appears_in_the_spec_and_in_messages_without_another_edit():
    class Whisper(Attack):
        """Nothing but a name and an option."""

        volume: int = 3

    try:
        attacks.register("whisper")(Whisper)
        assert parse({"attack": {"name": "whisper", "volume": 5}}).attack.volume == 5
        with pytest.raises(InputError, match="whisper"):
            parse({"attack": "shout"})
        with pytest.raises(InputError, match=r"attack\.volume"):
            parse({"attack": {"name": "whisper", "volume": "loud"}})
    finally:
        attacks._classes.pop("whisper", None)
