"""A view lends the federation's own tensors: an attack that writes to them ends the run and is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from scapegoat import aggregation, attacks
from scapegoat.attacks import Attack, AttackerView, Crafted
from scapegoat.attacks.passive import Passive
from scapegoat.cli import main
from scapegoat.crafting.checked import craft_checked
from scapegoat.errors import InputError
from tests.attacks.views import ATTACKS, view
from tests.federation.small import federation

Write = Callable[[AttackerView], Any]


class Vandal(Attack):
    """Writes where `write` says, and sends what its clients would honestly have sent."""

    write: Write

    def craft(self, view: AttackerView) -> Crafted:
        self.write(view)
        return Crafted(view.honest())


WRITES: dict[str, Write] = {
    "the honest updates": lambda view: view.peers.zero_(),
    "the honest updates, one row": lambda view: view.peers[1].mul_(2),
    "the honest updates, by index": lambda view: view.peers.__setitem__(0, 1.0),
    "the global parameters": lambda view: view.parameters.add_(1),
    "the global parameters, in part": lambda view: view.parameters[3:].view(-1, 1).clamp_(0),
    "the targets": lambda view: view.targets.x.neg_(),
    "the targets' labels": lambda view: view.targets.y.copy_(view.wrong_labels),
    "the wrong labels": lambda view: view.wrong_labels.zero_(),
    "the mask data": lambda view: view.mask.x[0].zero_(),
    "the mask labels": lambda view: view.mask.y.zero_(),
}


@pytest.mark.parametrize("what", WRITES)
def test_an_attack_that_changes_what_it_was_shown_ends_the_run_in_one_line_that_names_it(what: str) -> None:
    simulation = federation(attack=Vandal(write=WRITES[what], targets=30, mask=20), fraction=1.0)
    before = simulation.server.parameters
    with pytest.raises(InputError) as caught:
        simulation.run_round()
    line = str(caught.value)
    assert line.startswith("attack Vandal")
    assert f"changed {what.split(',')[0]} (view." in line
    assert "work on a copy" in line
    assert "\n" not in line
    assert simulation.server.parameters is before  # nothing was aggregated
    assert simulation.records == []


def test_working_on_a_copy_is_no_offence() -> None:
    def copied(view: AttackerView) -> Tensor:
        return view.peers.clone().zero_() + view.parameters.clone().zero_()

    vandal, honest = (
        federation(attack=attack, fraction=1.0) for attack in (Vandal(write=copied, targets=30, mask=20), "passive")
    )
    for _ in range(2):
        vandal.run_round()
        honest.run_round()
    assert torch.equal(vandal.server.parameters, honest.server.parameters)


def test_the_command_ends_with_code_2_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Passive, "craft", lambda _, view: Crafted(view.peers.mul_(-1)[: view.senders]))
    settings = ["data.records=600", "model.hidden=[8]", "attack.name=passive", "attack.targets=40", "attack.mask=20"]
    settings += ["federation.rounds=2", "federation.fraction=1.0"]
    with pytest.raises(SystemExit) as stopped:
        main(["run", "--json", *(word for text in settings for word in ("--set", text))])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error == (
        "scapegoat: attack passive changed the honest updates (view.peers) in place; work on a copy (.clone())\n"
    )


@pytest.mark.parametrize("local", ["gradient", "epochs"])
@pytest.mark.parametrize("name", ATTACKS)
def test_our_own_attacks_leave_their_view_as_it_was(name: str, local: str) -> None:
    craft_checked(attacks.get(name), view(local=local, senders=2))


@pytest.mark.parametrize("rule", aggregation.registry.names())
def test_aiming_at_a_rule_leaves_the_view_as_it_was(rule: str) -> None:
    craft_checked(attacks.get("adaptive", target_rule=rule), view(peers=9))
