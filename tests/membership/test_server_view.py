"""A curious server's scores, summed up round by round, are those of all that it saw at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from scapegoat import models
from scapegoat.gradients import GradientOracle
from scapegoat.membership import server_view
from scapegoat.membership.scores.fedmia import fedmia
from scapegoat.membership.scores.update_cosine import update_cosine
from scapegoat.membership.scores.update_regression import update_regression
from scapegoat.membership.scoring import Regression
from scapegoat.membership.server_view import RIDGE, Look, ServerView, groups_of, look


@given(
    rounds=st.integers(1, 6), clients=st.integers(1, 6), targets=st.integers(1, 5), seed=st.integers(0, 99),
    gone=st.floats(0, 0.9), suspected=st.booleans(),
)  # fmt: skip
@settings(deadline=None, max_examples=80)
def test_the_sums_give_the_scores_of_all_rounds_together(rounds, clients, targets, seed, gone, suspected):
    rng = np.random.default_rng(seed)
    whole, found, expected = (np.full((rounds, clients, targets), np.nan) for _ in range(3))
    chance, weight = rng.uniform(0.1, 1, clients), rng.uniform(0.1, 2, clients)
    view = ServerView(clients, targets, chance, weight)
    for round_ in range(rounds):
        picked = np.sort(rng.choice(clients, rng.integers(1, clients + 1), replace=False))
        cosines = rng.uniform(-1, 1, (len(picked), targets))
        cosines[rng.random(cosines.shape) < gone / 2] = np.nan
        coefficients = np.where(np.isnan(cosines), np.nan, rng.normal(size=cosines.shape))
        lengths = rng.uniform(0, 2, targets)
        whole[round_, picked], found[round_, picked] = cosines, coefficients
        expected[round_, picked] = weight[picked][:, None] * lengths
        view.add(picked.tolist(), Look(cosines, coefficients, lengths))
        # Carried over a stop after every round.
        later = ServerView(clients, targets, chance, weight)
        later.restore({name: torch.clone(value) for name, value in view.state().items()})
        view = later
    client = rng.integers(0, clients, targets) if suspected else None
    scores = view.scores(client)
    np.testing.assert_allclose(scores["update_cosine"], update_cosine(whole, client), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(scores["fedmia"], fedmia(whole, client), rtol=1e-12, atol=1e-14)
    regressed = update_regression(Regression(found, expected, chance), client)
    np.testing.assert_allclose(scores["update_regression"], regressed, rtol=1e-10, atol=1e-12)


def test_a_server_that_does_not_know_the_share_of_a_record_goes_without_the_regression():
    assert set(ServerView(3, 2).scores(None)) == {"update_cosine", "fedmia"}


def test_targets_are_looked_at_by_suspected_client_and_all_of_them_once(monkeypatch):
    monkeypatch.setattr(server_view, "AT_ONCE", 4)
    owners = np.array([2, 0, 2, 2, 2, 0, 2])
    groups = groups_of(owners, 7)
    assert sorted(torch.cat(groups).tolist()) == list(range(7))
    assert all(len(set(owners[rows.tolist()])) == 1 and len(rows) <= 4 for rows in groups)
    assert [len(rows) for rows in groups_of(None, 7)] == [4, 3]


def gradients_one_by_one(model, vector, x, y):
    model.point_at(vector)
    found = []
    for target in range(len(y)):
        loss = F.cross_entropy(model.module(x[target : target + 1]), y[target : target + 1])
        parts = torch.autograd.grad(loss, list(model.module.parameters()))
        found.append(torch.cat([g.flatten() for g in parts]))
    return torch.stack(found).double()


@pytest.mark.parametrize("at_once", [1, 4, 128])
def test_cosines_and_coefficients_are_those_of_gradients_taken_one_by_one(monkeypatch, at_once):
    monkeypatch.setattr(server_view, "AT_ONCE", at_once)
    torch.manual_seed(0)
    model = models.build(models.registry.parse({"name": "mlp", "hidden": [7]}), (5,), 3, seed=1)
    vector = torch.randn(model.d) * 0.3
    x, y = torch.randn(9, 5), torch.randint(0, 3, (9,))
    updates = torch.randn(4, model.d)
    updates[1] = 0
    updates[2, 0] = torch.nan
    groups = groups_of(None, 9)
    found = look(GradientOracle(model, vector), x, y, updates, groups)
    gradients = gradients_one_by_one(model, vector, x, y)
    for target in range(9):
        expected = F.cosine_similarity(updates[[0, 3]].double(), gradients[target][None]).numpy()
        np.testing.assert_allclose(found.cosines[[0, 3], target], expected, rtol=1e-4, atol=1e-6)
    for rows in groups:
        unit = gradients[rows] / gradients[rows].norm(dim=1, keepdim=True)
        # Ridge regression as least squares with a row more per coefficient.
        design = torch.cat([unit.T, RIDGE**0.5 * torch.eye(len(rows), dtype=torch.float64)])
        for update in (0, 3):
            aim = torch.cat([updates[update].double(), torch.zeros(len(rows), dtype=torch.float64)])
            expected = torch.linalg.lstsq(design, aim[:, None]).solution[:, 0].numpy()
            np.testing.assert_allclose(found.coefficients[update, rows], expected, rtol=1e-3, atol=1e-4)
    assert np.isnan(found.cosines[1:3]).all()
    assert np.isnan(found.coefficients[1:3]).all()


def test_an_update_that_is_a_targets_gradient_has_the_coefficient_that_is_expected_of_it():
    torch.manual_seed(0)
    model = models.build(models.registry.parse({"name": "mlp", "hidden": [7]}), (5,), 3, seed=1)
    vector = torch.randn(model.d) * 0.3
    x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
    gradients = gradients_one_by_one(model, vector, x, y).float()
    found = look(GradientOracle(model, vector), x, y, gradients / 8, groups_of(None, 6))
    np.testing.assert_allclose(np.diag(found.coefficients), found.lengths / 8, rtol=1e-4)


def test_a_target_without_a_gradient_is_nobodys_and_spoils_nothing():
    torch.manual_seed(0)
    model = models.build(models.registry.parse({"name": "mlp", "hidden": [7]}), (5,), 3, seed=1)
    vector = torch.randn(model.d) * 0.3
    x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
    x[2] = torch.inf
    found = look(GradientOracle(model, vector), x, y, torch.randn(3, model.d), groups_of(None, 6))
    assert np.isnan(found.coefficients[:, 2]).all()
    others = [0, 1, 3, 4, 5]
    assert np.isfinite(found.coefficients[:, others]).all()
    assert (found.lengths[others] > 0).all()
