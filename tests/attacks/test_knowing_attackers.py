"""Attackers that know: they wait, pause, share the load, aim at few, keep the books of a rule, or turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scapegoat import aggregation, attacks
from scapegoat.attacks import Attack, AttackerView, Crafted
from scapegoat.crafting.black_box import Copy
from scapegoat.crafting.sending import Peers
from scapegoat.errors import OptionError
from scapegoat.experiments import parse
from tests.attacks.views import mlp, rows, view
from tests.federation.small import federation
from tests.reference import attacks as reference

AROUND = ["sleeper", "alternating", "few_targets", "colluders"]


def poison(seen: AttackerView, **options: Any) -> Tensor:
    return attacks.get("blend", **options).craft(seen).updates


@pytest.mark.parametrize("how", ["honest", "echo"])
@pytest.mark.parametrize("round_", [0, 6, 7, 30])
def test_a_sleeper_is_harmless_until_its_round(round_: int, how: str) -> None:
    seen = view(round=round_, senders=2)
    sent = attacks.get("sleeper", until=7, rest=how).craft(seen).updates
    echo = seen.peers.mean(0) * (seen.peers.norm(dim=1).median() / seen.peers.mean(0).norm())
    harmless = seen.honest() if how == "honest" else echo.expand(2, -1)
    torch.testing.assert_close(sent, harmless if round_ < 7 else poison(seen))


def test_without_peers_there_is_nothing_to_echo() -> None:
    seen = view(peers=0)
    assert torch.equal(attacks.get("sleeper").craft(seen).updates, seen.honest())


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 40))
def test_poison_and_pauses_follow_the_cycle(every: int, work: int, round_: int) -> None:
    if work > every:
        with pytest.raises(OptionError) as caught:
            attacks.get("alternating", every=every, work=work)
        assert caught.value.path == "work"
        return
    seen = view(round=round_)
    sent = attacks.get("alternating", every=every, work=work).craft(seen).updates
    hostile = [r for r in range(every) if r >= every - work]
    torch.testing.assert_close(sent, poison(seen) if round_ % every in hostile else seen.honest())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.floats(0, 1), st.integers(1, 6))
def test_tangent_is_the_blend_turned_to_where_the_median_peer_points(seed: int, share: float, peers: int) -> None:
    seen = view(mlp(seed=seed), peers=peers, senders=2)
    sent = rows(attacks.get("tangent", share=share).craft(seen).updates)
    attack = rows(seen.gradients.mean(seen.targets.x, seen.wrong_labels)[None])[0]
    mask = rows(seen.gradients.mean(seen.mask.x, seen.mask.y)[None])[0]
    parameters = rows(seen.parameters[None])[0]
    want = reference.tangent(attack, mask, share, rows(seen.peers), parameters)
    np.testing.assert_allclose(sent[0], want, rtol=1e-4, atol=1e-5 * np.linalg.norm(want))
    assert (sent[0] == sent[1]).all()


@pytest.mark.parametrize("peers", [0, 5])
def test_tangent_pulls_the_parameters_back_no_more_than_its_peers(peers: int) -> None:
    """The blend does: wrong labels ask for a smaller model, once there is one."""
    model = mlp()
    start = model.initial()
    for _ in range(60):
        batch = view(model, parameters=start).targets
        start = start - 0.5 * model.gradient(start, batch.x, batch.y)[0]
    seen = view(model, parameters=start, peers=peers)

    def back(update: Tensor) -> float:
        return float(torch.nn.functional.cosine_similarity(update, start, dim=0))

    theirs = sorted(back(peer) for peer in seen.peers)
    assert back(poison(seen)[0]) > 0.1
    sent = attacks.get("tangent").craft(seen).updates[0]
    assert back(sent) == pytest.approx(theirs[len(theirs) // 2] if theirs else 0.0, abs=1e-4)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_tangent_among_peers_that_point_along_the_parameters_does_too(sign: float) -> None:
    """Nothing is left for what lies across."""
    seen = view(parameters=torch.arange(mlp().d) % 2 + 1.0)
    seen = replace(seen, peers=sign * seen.parameters.expand(3, -1))
    torch.testing.assert_close(attacks.get("tangent").craft(seen).updates[0], seen.peers[0], rtol=1e-3, atol=1e-3)


def test_tangent_of_a_model_of_zeros_is_the_blend() -> None:
    seen = view(parameters=torch.zeros(mlp().d))
    assert torch.equal(attacks.get("tangent").craft(seen).updates, poison(seen))


class Listed(Attack):
    """Remembers which targets it was given, and whose client it thinks it is."""

    def craft(self, view: AttackerView) -> Crafted:
        given_views.append(view)
        return Crafted(torch.full((view.senders, len(view.parameters)), float(len(given_views))))


given_views: list[AttackerView] = []


def labels_given(attack: Attack, seen: AttackerView, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    given_views.clear()
    monkeypatch.setitem(attack.__dict__, "poison", Listed())
    attack.craft(seen)
    for inner in given_views:
        assert len(inner.targets.x) == len(inner.targets.y) == len(inner.wrong_labels)
    return [inner.targets.x for inner in given_views]


@pytest.mark.parametrize(("few", "stint", "round_", "rows"), [
    (5, 0, 9, range(5)),
    (5, 1, 0, range(5)),
    (5, 1, 3, range(15, 16)),
    (5, 2, 3, range(5, 10)),
    (5, 1, 4, range(5)),
    (99, 1, 4, range(16)),
])  # fmt: skip
def test_few_targets_are_attacked_at_a_time(
    few: int, stint: int, round_: int, rows: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = view(round=round_)
    (asked,) = labels_given(attacks.get("few_targets", few=few, stint=stint), seen, monkeypatch)
    assert torch.equal(asked, seen.targets.x[list(rows)])


def test_who_is_asked_for_is_told_apart_only_where_it_is_always_the_same() -> None:
    assert attacks.get("few_targets", few=5).aimed_at(16) == 5
    assert attacks.get("few_targets", few=99).aimed_at(16) == 16
    assert attacks.get("few_targets", few=5, stint=1).aimed_at(16) == 16
    assert attacks.get("sleeper", inner={"name": "few_targets", "few": 5}).aimed_at(16) == 5


@pytest.mark.parametrize("senders", [2, 3, 20])
def test_colluders_share_the_targets_and_differ(senders: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = view(senders=senders)
    shares = labels_given(attacks.get("colluders"), seen, monkeypatch)
    assert len(shares) == senders
    if senders <= len(seen.targets):
        told = torch.cat(shares).sort(dim=0).values
        assert torch.equal(told, seen.targets.x.sort(dim=0).values)  # everybody's once
    sent = attacks.get("colluders", inner="fedpoisonmia").craft(seen).updates
    assert sent.shape == (senders, seen.gradients.model.d)
    assert len(sent[:3].unique(dim=0)) == min(3, senders)


def test_of_colluders_that_take_turns_one_poisons() -> None:
    for round_ in range(4):
        seen = view(senders=3, round=round_)
        sent = attacks.get("colluders", load="turns").craft(seen).updates
        for row in range(3):
            expected = poison(seen)[0] if row == round_ % 3 else seen.honest()[row]
            torch.testing.assert_close(sent[row], expected)


def test_a_colluder_that_is_alone_does_all_of_the_work() -> None:
    assert torch.equal(attacks.get("colluders").craft(view()).updates, poison(view()))


def test_attacks_around_attacks_compose() -> None:
    attack = attacks.get("sleeper", until=5, inner={"name": "alternating", "inner": {"name": "blend", "share": 0.3}})
    torch.testing.assert_close(attack.craft(view(round=7)).updates, poison(view(), share=0.3))
    assert torch.equal(attack.craft(view(round=6)).updates, view().honest())
    assert [part.name for part in attack.parts()] == ["sleeper", "alternating", "blend"]


@pytest.mark.parametrize("name", AROUND)
def test_what_all_attacks_share_is_said_once(name: str) -> None:
    whole = attacks.get(name, inner="adaptive", targets=40, mask=30, knowledge="partial")
    inner = whole.parts()[-1]
    assert (inner.targets, inner.mask, inner.knowledge) == (40, 30, "partial")
    written = whole.canonical()
    assert written["inner"]["name"] == "adaptive"
    assert "targets" not in written["inner"]
    assert attacks.registry.parse(written) == whole
    with pytest.raises(OptionError) as caught:
        attacks.get(name, inner={"name": "blend", "targets": 5})
    assert caught.value.path == "inner.targets"
    with pytest.raises(OptionError, match="is not an attack"):
        attacks.get(name, inner="kindness")


def test_a_spec_reads_and_sets_an_attack_inside_another() -> None:
    spec = parse({"attack": "sleeper"}, ["attack.inner.name=blend", "attack.inner.share=0.2", "attack.until=3"])
    assert spec.attack.canonical()["inner"] == {"name": "blend", "share": 0.2}
    assert parse(spec.canonical()).hash == spec.hash


@pytest.mark.parametrize("name", AROUND)
def test_an_inner_attack_is_told_what_its_threat_model_grants(name: str) -> None:
    seen: list[int | None] = []

    class Told(Attack):
        told_trim = True

        def craft(self, view: AttackerView) -> Crafted:
            seen.append(view.trim)
            return Crafted(view.honest())

    options = {"sleeper": {"until": 0}, "alternating": {"every": 1}}.get(name, {})
    attack = attacks.get(name, targets=30, mask=20, **options)
    attack.__dict__["poison"] = Told(targets=30, mask=20)
    federation(attack=attack, rule="atm", fraction=1.0).run_round()
    assert set(seen) == {1}


def shadowed(rule: str = "reputation_atm", **setting: Any) -> Any:
    attack = attacks.get("shadow", target_rule=rule, targets=30, mask=20, evaluations=6)
    return federation(attack=attack, rule=rule, **{"fraction": 1.0, "rounds": 6, **setting})


@pytest.mark.parametrize("rule", ["reputation_atm", "memory_atm", "centered_clipping"])
def test_the_books_of_a_shadow_are_those_of_the_rule(rule: str) -> None:
    simulation = shadowed(rule)
    for _ in range(4):
        simulation.run_round()
    copied = {k.removeprefix("rule/"): v for k, v in simulation.cast.attacker.memory.items()}
    real = simulation.server.rule_state
    assert sorted(copied) == sorted(real)
    for key, value in real.items():
        torch.testing.assert_close(copied[key], value, rtol=1e-5, atol=1e-7)
        assert copied[key].data_ptr() != value.data_ptr()


def test_a_shadow_that_was_stopped_goes_on_with_its_books() -> None:
    whole, stopped, resumed = shadowed(), shadowed(), shadowed()
    for _ in range(6):
        last = whole.run_round()
    for _ in range(3):
        stopped.run_round()
    resumed.restore({key: value.clone() for key, value in stopped.state().items()})
    for _ in range(3):
        again = resumed.run_round()
    assert again.attack_notes == last.attack_notes
    assert torch.equal(resumed.server.parameters, whole.server.parameters)


def test_a_shadow_that_is_left_out_echoes_the_mean() -> None:
    """Whatever it sends, a copy that has it under suspicion leaves it out: it mends its reputation."""
    d = view().gradients.model.d
    memory = {"rule/direction/9": torch.ones(d) / d**0.5, "rule/reputation/9": torch.tensor([5.0, 200.0, 0.0]).double()}
    seen = view(peers=7, clients=(0, 1, 2, 3, 4, 5, 6, 9), memory=memory)
    crafted = attacks.get("shadow").craft(seen)
    assert crafted.notes["kept_by_copy"] == 0.0
    torch.testing.assert_close(crafted.updates[0], seen.peers.mean(0))
    fresh = attacks.get("shadow").craft(view(peers=7, clients=(0, 1, 2, 3, 4, 5, 6, 9)))
    assert fresh.notes["kept_by_copy"] == 1.0
    assert fresh.notes["strength"] > 0


@pytest.mark.parametrize(("knowledge", "told"), [("full", tuple(range(8))), ("partial", None)])
def test_whose_update_is_whose_is_granted_to_those_who_may_know(knowledge: str, told: tuple[int, ...] | None) -> None:
    seen: list[AttackerView] = []

    class Spy(Attack):
        def craft(self, view: AttackerView) -> Crafted:
            seen.append(view)
            return Crafted(view.honest())

    class Granted(Spy):
        told_clients = True

    for cls in (Spy, Granted):
        federation(attack=cls(targets=30, mask=20, knowledge=knowledge), rule="atm", fraction=1.0).run_round()
    assert seen[0].clients is None
    assert seen[1].clients == told
    assert seen[0].memory == seen[1].memory == {}


@settings(max_examples=16, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from(["fedavg", "norm_clipping", "atm", "krum", "reputation_atm", "memory_atm", "centered_clipping"]),
    st.sampled_from([1.0, 1e-9]),
)
def test_trials_in_the_space_that_the_vectors_span_find_what_whole_vectors_do(
    seed: int, rule: str, scale: float
) -> None:
    """The same gain, of a rule that remembers too, and of vanished updates; strengths may differ where gains do not."""
    model = mlp(features=40, seed=seed)
    seen = view(model, peers=7, clients=tuple(range(8)), senders=1)
    seen = replace(seen, peers=scale * seen.peers)
    target = aggregation.parse(rule)
    direction = seen.gradients.mean(seen.targets.x, seen.wrong_labels)
    peers = Peers.of(seen)
    state: dict[str, Tensor] = {}
    for _ in range(3):
        state = Copy(seen, peers, direction, target, state).after(scale * seen.honest()[0])
    whole = Copy(seen, peers, direction, target, state)
    known = scale * direction
    short = whole.in_short(known)
    assert short is not None
    for strength in (0.0, 0.1, 0.7, 3.0):
        for matched in (False, True):
            one, other = whole.run(strength, matched), short.run(strength, matched)
            assert other.gain == pytest.approx(one.gain, rel=1e-3, abs=1e-4)
            assert other.kept == one.kept
    assert short.known(known).gain == pytest.approx(whole.known(known).gain, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("rule", ["median", "top_k", {"name": "reputation_atm", "sketch": 64}, "fltrust"])
def test_rules_that_look_at_more_than_lengths_and_angles_are_tried_on_whole_vectors(rule: object) -> None:
    seen = view(mlp(features=40), peers=7)
    direction = seen.gradients.mean(seen.targets.x, seen.wrong_labels)
    assert Copy(seen, Peers.of(seen), direction, aggregation.parse(rule), {}).in_short(direction) is None
