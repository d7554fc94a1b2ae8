"""A user's own module with unusual layers is attacked without a line of code."""

from __future__ import annotations

import pytest
import torch

from scapegoat import attacks
from scapegoat.attacks import Samples
from scapegoat.modelling.flat_model import FlatModel
from tests.attacks.views import ATTACKS, rows, view
from tests.gradients.modules import CLASSES, Words
from tests.reference import attacks as reference


def tokens(count: int, shape: tuple[int, ...], classes: int, seed: int) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    return Samples(
        torch.randint(1, 12, (count, *shape), generator=generator).float(),
        torch.randint(classes, (count,), generator=generator),
    )


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize(("recurrent", "attention"), [(True, False), (False, True)])
def test_embedding_lstm_and_attention(name: str, recurrent: bool, attention: bool) -> None:
    torch.manual_seed(0)
    model = FlatModel(Words(12, 4, recurrent, attention), (5,), CLASSES)
    seen = view(model, draw=tokens)
    crafted = attacks.get(name).craft(seen)
    assert crafted.updates.shape == (1, model.d)
    assert crafted.updates.isfinite().all()
    if name == "fedpoisonmia" and crafted.notes["feasible"]:
        peers = rows(seen.peers)
        assert reference.largest_angle(rows(crafted.updates)[0], peers) <= reference.angle_bound(peers) + 1e-4
