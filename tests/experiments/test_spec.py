import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scapegoat.attacks.base import Attack
from scapegoat.attacks.base import registry as attacks
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
