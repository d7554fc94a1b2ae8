"""The hostile mod: what it sends, what it writes down, and that the wrapped app notices nothing."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from scapegoat.attacks import Samples
from scapegoat.errors import InputError
from scapegoat.integrations.flower import AuditMaterial, HostileConfig, hostile_mod
from scapegoat.integrations.shared.audit_inputs import read_hostile, write_hostile
from scapegoat.integrations.shared.hostile import append_line, live_attack, read_lines, read_model
from scapegoat.tasks import Classification
from tests.integrations.flower_fakes import instruction

CONTEXT = SimpleNamespace(node_id=77, node_config={}, run_config={}, state=RecordDict())


class Tiny(nn.Module):
    """A layer, a BatchNorm with buffers, a layer, and a parameter that nobody trains."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 4)
        self.fixed = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(F.relu(self.norm(self.first(x))))


class Tied(nn.Module):
    """Two layers that share their weight: two names in the state, one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.relu(self.first(x)))


def model(factory=Tiny) -> nn.Module:
    torch.manual_seed(0)
    return factory()


def samples(count: int, seed: int, features: int = 6) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    return Samples(torch.randn(count, features, generator=generator), torch.randint(4, (count,), generator=generator))


def config(tmp_path, attack, factory=Tiny, features: int = 6, **keywords) -> HostileConfig:
    targets = samples(10, 1, features)
    return HostileConfig(
        attack=live_attack(attack),
        model=factory,
        targets=targets,
        wrong_labels=(targets.y + 1) % 4,
        mask=samples(40, 2, features),
        observations=tmp_path / "observations.jsonl",
        **keywords,
    )


def honest_reply(message: Message, context) -> Message:
    """A step of 0.01 on everything, other statistics, and metrics of its own."""
    out = ArrayRecord()
    for name, array in message.content["arrays"].items():
        value = array.numpy()
        out[name] = Array(np.asarray(value + (0.01 if value.dtype == np.float32 else 1), dtype=value.dtype))
    metrics = MetricRecord({"num-examples": 12, "loss": 0.5})
    return Message(RecordDict({"weights": out, "metrics": metrics}), reply_to=message)


def sent(arrays: ArrayRecord, server_round: int = 3, kind: str = "train") -> Message:
    message = instruction(77, arrays, server_round)
    message.metadata.__dict__["_message_type"] = kind
    return message


def update_in(reply: Message, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    arrays = reply.content["weights"]
    return {name: state[name] - torch.from_numpy(arrays[name].numpy()) for name in state}


def test_gradient_ascent_sends_minus_the_gradient_of_the_targets(tmp_path):
    module = model()
    settings = config(tmp_path, "gradient_ascent", local="gradient")
    reply = hostile_mod(settings)(sent(ArrayRecord(module.state_dict())), CONTEXT, honest_reply)
    module.eval()
    F.cross_entropy(module(settings.targets.x), settings.targets.y).backward()
    update = update_in(reply, module.state_dict())
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(update[name], -parameter.grad, rtol=1e-3, atol=1e-6)
    assert reply.content["metrics"]["num-examples"] == 12


def test_buffers_and_what_is_not_trained_stay_as_the_app_sent_them(tmp_path):
    arrays = ArrayRecord(model().state_dict())
    reply = hostile_mod(config(tmp_path, "gradient_ascent"))(sent(arrays), CONTEXT, honest_reply)
    honest = honest_reply(sent(arrays), CONTEXT).content["weights"]
    for name in ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "fixed"):
        assert reply.content["weights"][name].data == honest[name].data
    assert list(reply.content["weights"]) == list(honest)


def test_a_passive_attacker_sends_what_its_app_sends(tmp_path):
    arrays = ArrayRecord(model().state_dict())
    reply = hostile_mod(config(tmp_path, "passive"))(sent(arrays), CONTEXT, honest_reply)
    honest = honest_reply(sent(arrays), CONTEXT).content["weights"]
    for name, array in honest.items():
        np.testing.assert_allclose(reply.content["weights"][name].numpy(), array.numpy(), atol=1e-6)


@pytest.mark.parametrize("attack", ["fedpoisonmia", "agrevader", {"name": "adaptive"}])
def test_attacks_hide_among_stand_ins(tmp_path, attack):
    settings = config(tmp_path, attack, stand_ins=6, batch_size=16, trim=1)
    hostile_mod(settings)(sent(ArrayRecord(model().state_dict())), CONTEXT, honest_reply)
    (line,) = read_lines(settings.observations)
    assert line["attacking"]
    assert math.isfinite(line["norm"])
    assert line["norm"] > 0
    if attack == "fedpoisonmia" and line["notes"]["feasible"]:
        assert line["notes"]["angle"] <= line["notes"]["bound"] + 1e-4
        assert line["masks"]


def test_arrays_without_names_are_matched_by_order(tmp_path):
    module = model()
    numbered = ArrayRecord([value.numpy() for value in module.state_dict().values()])
    settings = config(tmp_path, "gradient_ascent", local="gradient")
    reply = hostile_mod(settings)(sent(numbered), CONTEXT, honest_reply)
    named = hostile_mod(settings)(sent(ArrayRecord(module.state_dict())), CONTEXT, honest_reply)
    for one, other in zip(reply.content["weights"].values(), named.content["weights"].values(), strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_replies_may_be_updates(tmp_path):
    module = model()
    settings = config(tmp_path, "gradient_ascent", local="gradient", replies="updates")
    reply = hostile_mod(settings)(sent(ArrayRecord(module.state_dict())), CONTEXT, honest_reply)
    module.eval()
    F.cross_entropy(module(settings.targets.x), settings.targets.y).backward()
    got = torch.from_numpy(reply.content["weights"]["last.bias"].numpy())
    torch.testing.assert_close(got, -module.last.bias.grad)


def test_tied_weights_are_sent_under_all_their_names(tmp_path):
    module = model(Tied)
    settings = config(tmp_path, "gradient_ascent", Tied, features=4)
    reply = hostile_mod(settings)(sent(ArrayRecord(module.state_dict())), CONTEXT, honest_reply)
    arrays = reply.content["weights"]
    np.testing.assert_array_equal(arrays["first.weight"].numpy(), arrays["second.weight"].numpy())
    assert not np.allclose(arrays["first.weight"].numpy(), module.first.weight.detach().numpy())


def test_every_model_is_scored_and_kept(tmp_path):
    module = model()
    settings = config(tmp_path, {"name": "gradient_ascent", "start_round": 5})
    mod = hostile_mod(settings)
    arrays = ArrayRecord(module.state_dict())
    before = mod(sent(arrays, 3), CONTEXT, honest_reply)
    mod(sent(arrays, 3, "evaluate"), CONTEXT, honest_reply)
    mod(sent(arrays, 6), CONTEXT, honest_reply)
    lines = read_lines(settings.observations)
    assert [(line["message"], line["after"]) for line in lines] == [("train", 2), ("evaluate", 3), ("train", 5)]
    module.eval()
    expected = Classification().margins(module(settings.targets.x), settings.targets.y).tolist()
    assert lines[0]["scores"] == pytest.approx(expected, abs=1e-5)
    assert [line.get("attacking") for line in lines] == [False, None, True]
    honest = honest_reply(sent(arrays), CONTEXT).content["weights"]
    assert before.content["weights"]["last.bias"].data == honest["last.bias"].data
    kept = read_model(settings.observations.with_suffix(".safetensors"))
    assert {name: array.tolist() for name, array in kept.items()} == {
        name: value.tolist() for name, value in module.state_dict().items()
    }


def test_rounds_are_counted_where_the_app_does_not_name_them(tmp_path):
    settings = config(tmp_path, "passive")
    mod = hostile_mod(settings)
    for _ in range(2):
        message = sent(ArrayRecord(model().state_dict()))
        message.content["config"] = ConfigRecord({"lr": 0.1})
        mod(message, CONTEXT, honest_reply)
    assert [line["server_round"] for line in read_lines(settings.observations)] == [1, 2]


def test_other_messages_pass_untouched(tmp_path):
    settings = config(tmp_path, "gradient_ascent")
    message = sent(ArrayRecord(model().state_dict()), kind="query")
    assert hostile_mod(settings)(message, CONTEXT, lambda m, c: "the answer") == "the answer"
    assert read_lines(settings.observations) == []


def test_a_model_of_another_architecture_is_refused_in_one_line(tmp_path):
    settings = config(tmp_path, "passive", lambda: nn.Linear(6, 4))
    with pytest.raises(InputError, match="differ in 'weight'"):
        hostile_mod(settings)(sent(ArrayRecord(model().state_dict())), CONTEXT, honest_reply)


def test_full_knowledge_is_refused_where_it_would_matter():
    with pytest.raises(InputError, match="partial"):
        live_attack({"name": "fedpoisonmia", "knowledge": "full"})
    assert live_attack("fedpoisonmia").knowledge == "partial"
    assert live_attack({"name": "passive", "knowledge": "full"}).knowledge == "full"


def test_an_attack_is_named_and_wrong_labels_are_drawn(tmp_path):
    targets = samples(200, 1)
    made = HostileConfig("agrevader", Tiny, targets, samples(40, 2), tmp_path / "o.jsonl", seed=5)
    assert made.attack == live_attack("agrevader")
    assert (made.wrong_labels != targets.y).all()
    assert set(made.wrong_labels.tolist()) == {0, 1, 2, 3}
    with pytest.raises(InputError, match="wrong labels"):
        HostileConfig("passive", Tiny, targets, samples(40, 2), tmp_path / "o.jsonl", wrong_labels=torch.zeros(3))


def test_a_torn_line_is_dropped(tmp_path):
    path = tmp_path / "lines.jsonl"
    append_line(path, {"a": 1})
    with path.open("a") as file:
        file.write('{"a": 2, "b"')
    assert read_lines(path) == [{"a": 1}]


def test_what_the_hostile_node_is_given_holds_no_truth(tmp_path):
    material = AuditMaterial(
        model=Tiny, targets=samples(10, 1), members=torch.arange(10) < 5, mask=samples(8, 2), test=samples(5, 3)
    )
    path = write_hostile(tmp_path, material, live_attack("agrevader"), seed=4, stand_ins=3, batch_size=7)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hostile.json", "hostile.safetensors"]
    read = read_hostile(path)
    assert read.attack == live_attack("agrevader")
    assert read.model is Tiny
    assert torch.equal(read.targets.x, material.targets.x)
    assert (read.wrong_labels != material.targets.y).all()
    assert (read.stand_ins, read.batch_size, read.seed) == (3, 7, 4)
    assert b"members" not in path.read_bytes() + (tmp_path / "hostile.safetensors").read_bytes()


@pytest.mark.parametrize(
    "wrong",
    [
        {"members": torch.ones(10, dtype=torch.bool)},
        {"members": torch.arange(9) < 5},
        {"members": torch.zeros(10)},
        {"mask": Samples(torch.empty(0, 6), torch.empty(0, dtype=torch.int64))},
    ],
)
def test_material_that_cannot_be_judged_is_refused(wrong):
    fine = {"model": Tiny, "targets": samples(10, 1), "members": torch.arange(10) < 5, "mask": samples(8, 2)}
    with pytest.raises(InputError):
        AuditMaterial(**{**fine, **wrong})


def test_what_an_attack_remembers_is_there_in_the_next_round(tmp_path):
    """Every message may come to a process of its own, so the memory is a file."""
    module = model()
    for server_round in (1, 2, 3):
        settings = config(tmp_path, {"name": "shadow", "evaluations": 4}, stand_ins=4)
        hostile_mod(settings)(sent(ArrayRecord(module.state_dict()), server_round), CONTEXT, honest_reply)
    kept = tmp_path / "observations.memory.safetensors"
    assert kept.stat().st_mode & 0o077 == 0
    rounds = {key: int(value) for key, value in load_file(kept).items() if key.startswith("rule/seen/")}
    assert len(rounds) == 6  # its own, the app's honest update and four stand-ins
    assert set(rounds.values()) == {2}
