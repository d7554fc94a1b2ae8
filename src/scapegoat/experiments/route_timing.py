"""Which routes are fastest on this machine: the candidates are timed on a run's own model and records."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import get_args

import torch
from torch import Tensor

from scapegoat import geometry
from scapegoat.crafting.contract import Samples
from scapegoat.federation.cast import Cast
from scapegoat.gradients import GradientOracle
from scapegoat.gradients.layer_map import CONVOLUTIONS, forget_layer_maps
from scapegoat.gradients.perceptron import Perceptron
from scapegoat.kernels.routes import FIXED, Product, Routes
from scapegoat.kernels.row_products import row_products, self_products, vector_products
from scapegoat.kernels.sparse_products import facts
from scapegoat.modelling.flat_model import FlatModel

CLIENTS = 8
"""Clients that train while their passes are timed, at the most."""

LEAST, MOST, BUDGET = 3, 40, 1.5
"""How often a candidate is timed: the least number of times, and more while the seconds last."""

ROOM = 1_000_000
"""Numbers that activations may be given where that is faster (4 MB)."""

NEAR, NEARER, GAIN = 1.3, 1.1, 0.97
"""Who takes longer than the best by more than this is not timed again, at first and later; who saves less than the rest
is not taken."""

Clock = Callable[[], float]

Question = tuple[str, list[Routes], Callable[[], object]]
"""What is asked, the candidates with the rule of thumb first, and the work that tells them apart."""


@dataclass(frozen=True)
class Choice:
    """The routes that were fastest, and by question what each candidate took (milliseconds)."""

    routes: Routes = FIXED
    milliseconds: dict[str, dict[str, float]] = field(default_factory=dict)


def fastest(candidates: Sequence[Routes], call: Callable[[Routes], object], clock: Clock) -> tuple[int, list[float]]:
    """The place of the fastest candidate, and the seconds of each.

    They take turns, so that a busy moment hits all of them. What counts is the time that a quarter of the turns stay
    within: others can only add to it, and a single turn may be short by luck. The first candidate stays where no other
    is faster by a margin that timing can tell.
    """
    turns: list[list[float]] = [[] for _ in candidates]
    seconds = [math.inf] * len(candidates)
    near = list(range(len(candidates)))
    for turn in range(MOST):
        for i in near:
            started = clock()
            call(candidates[i])
            turns[i].append(clock() - started)
        seconds = [sorted(taken)[len(taken) // 4] for taken in turns]
        if turn:
            near = [i for i in near if seconds[i] <= (NEAR if turn < LEAST else NEARER) * min(seconds)]
        if turn + 1 >= LEAST and sum(map(sum, turns)) > BUDGET:
            break
    best = seconds.index(min(seconds))
    return best if seconds[best] < GAIN * seconds[0] else 0, seconds


def timed(cast: Cast) -> Choice:
    """Time every question that this federation's rounds will ask. Nothing about it is changed."""
    return answered(cast.model, _questions(cast))


def answered(model: FlatModel, questions: Iterable[Question]) -> Choice:
    """The fastest routes for these questions about a model, which keeps its own."""
    before = model.routes
    chosen: dict[str, str | int] = {}
    milliseconds: dict[str, dict[str, float]] = {}
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    try:
        with torch.random.fork_rng(devices=[]):
            for name, candidates, work in questions:

                def call(routes: Routes, work: Callable[[], object] = work) -> None:
                    model.routes = routes
                    work()

                best, seconds = fastest(candidates, call, clock)
                chosen |= candidates[best].as_dict()
                told = zip(candidates, seconds, strict=True)
                milliseconds[name] = {candidate.in_words: round(1e3 * s, 3) for candidate, s in told}
    finally:
        model.routes = before
        forget_layer_maps(model)
    return Choice(Routes.parse(chosen), milliseconds)


def training_candidates(cast: Cast) -> dict[str, Routes]:
    """Every route of training that is timed for this federation, by its words."""
    found = next((candidates for name, candidates, _ in _questions(cast) if name == "training"), [])
    return {candidate.in_words: candidate for candidate in found if candidate != FIXED}


def _questions(cast: Cast) -> Iterator[Question]:
    """Every question that the rounds of this federation ask."""
    model, vector = cast.model, cast.server.parameters
    honest = [c for c in cast.setting.pick(cast.seed, 0) if c < cast.setting.benign][:CLIENTS]
    updates = torch.empty(max(len(honest), 1), model.d)
    if honest and cast.benign.local.has_routes(model):
        candidates = _training(cast, honest[0])
        # Convolutions keep clients apart: one tells as much as all.
        honest = honest[:1] if any(c.images for c in candidates) else honest
        starts, rows, rounds = [vector] * len(honest), updates[: len(honest)], itertools.count()

        def train() -> None:
            # As in a run: other batches every time, since a processor learns by heart what it does over and over, and
            # between them what reads all updates, since a pass that finds its memory in the cache is another one.
            cast.benign.updates(next(rounds), honest, starts, rows)
            geometry.gram(rows)
            torch.mean(rows, 0)

        yield "training", candidates, train
    targets, mask = cast.targets.x, cast.attacker.mask
    if targets.dim() == 2 and facts(targets).sparse is not None:
        both = [FIXED, *(Routes(scoring=product) for product in get_args(Product))]
        yield "scoring", both, lambda: model.logits(vector, targets)
    if targets.dim() == 4:
        sizes = [FIXED, *(Routes(scored_images=size) for size in (16, 32, 128))]
        yield "scoring", sizes, lambda: model.logits(vector, targets[:128])
    if cast.setting.malicious and cast.attacker.attack.per_sample:
        peers = updates if cast.benign.local.has_routes(model) else torch.randn_like(updates)
        yield from crafting_questions(model, vector, Samples(targets, cast.attacker.wrong_labels), mask, peers)


def crafting_questions(
    model: FlatModel, vector: Tensor, wrong: Samples, mask: Samples, peers: Tensor
) -> Iterator[Question]:
    """What crafting asks: the targets with wrong labels, single mask samples, their products with peers' updates."""
    if mask.x.dim() == 2 and facts(mask.x).sparse is not None:
        both = [FIXED, *(Routes(crafting=product) for product in get_args(Product))]

        def craft() -> None:
            oracle = GradientOracle(model, vector)
            oracle.mean(wrong.x, wrong.y)
            samples = oracle.per_sample(mask.x, mask.y)
            samples.gram()
            samples.dot(peers)

        yield "crafting", both, craft
    convolutions = [m.weight.numel() for m in model.module.modules() if isinstance(m, CONVOLUTIONS)]
    if convolutions and len(row_products()) > 1:
        # The largest one tells: the passes before are the same, whichever way the products are taken.
        rows, vectors = (torch.randn(many, max(convolutions)) for many in (len(mask), len(peers)))

        def multiply() -> None:
            self_products(rows, model.routes.rows)
            vector_products(rows, vectors, model.routes.rows)

        yield "products of rows", [FIXED, *(Routes(rows=product) for product in row_products()[1:])], multiply


def _training(cast: Cast, client: int) -> list[Routes]:
    model, rows = cast.model, cast.benign.batch(0, client)
    x, y = cast.dataset.inputs(rows), cast.dataset.y[rows]
    if x.dim() == 4:
        return [FIXED, *(Routes(images=size) for size in (16, 64))]
    found = [FIXED, Routes(passes="autograd")]
    if Perceptron.of(model, x, y) is None:
        return [*found, Routes(together=1)]
    products = get_args(Product) if facts(x.flatten(1)).sparse is not None else (None,)
    rooms = (None, ROOM) if model.d < ROOM else (None,)
    for room, records, weights in itertools.product(rooms, products, products):
        found.append(Routes(passes="hand", room=room, records=records, weights=weights))
    return found + [Routes(passes="hand", together=1, records=product, weights=product) for product in products]
