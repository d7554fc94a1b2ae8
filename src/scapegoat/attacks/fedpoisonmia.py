"""FedPoisonMIA: wrong-label gradients of the targets, hidden behind chosen mask gradients."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field

from scapegoat.crafting.contract import Attack, AttackerView, Crafted, register
from scapegoat.crafting.measures import Angle, Distance, Floats, Measure
from scapegoat.crafting.search import ALPHA_MIN, Products, Selection, Step, farthest_within, greedy
from scapegoat.crafting.sending import Peers, finished, inner, to_scale, with_norm


@register("fedpoisonmia")
class FedPoisonMIA(Attack):
    """Sends alpha * g_attack + g_mask, as far out among the peers as they are from each other, and no farther.

    Step I: g_attack is the gradient of the targets with wrong labels. Step II (Algorithm 1): a share `gamma` of the
    mask samples is chosen greedily, with alpha = 1; g_mask is their mean gradient. Step III (Eq. 4): the best alpha in
    (0, alpha_max], exact. Step IV: all senders send the result. `rounds_of_refinement` repeats II and III with the
    alpha found. `objective: norm` bounds Euclidean distances instead of angles; `match_norm` brings the result to the
    median norm of the peers, which changes no angle, and is always done after local epochs, whose updates have another
    scale than gradients. With fewer than two peers there is no bound: the gradient of all mask samples is sent.
    """

    takes_bfloat16 = True
    least_peers = 2
    per_sample = True

    gamma: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of the mask samples that are chosen."""
    selection: Literal["greedy", "random"] = "greedy"
    """How mask samples are chosen: greedily (Algorithm 1), or at random."""
    alpha: Literal["optimize"] | Annotated[float, Field(gt=0)] = "optimize"
    """Weight of the attack gradient: the best within the bound, or a number."""
    alpha_max: Annotated[float, Field(gt=ALPHA_MIN)] = 10.0
    """Largest weight that is tried."""
    rounds_of_refinement: Annotated[int, Field(ge=0)] = 0
    """Times that masks are chosen again with the weight found."""
    objective: Literal["angle", "norm"] = "angle"
    """What stays within the bound: angles to the peers, or Euclidean distances."""
    match_norm: bool = False
    """Whether the update is brought to the median norm of the peers."""

    def craft(self, view: AttackerView) -> Crafted:
        """Steps I to IV."""
        peers = Peers.of(view)
        if len(peers) < 2:
            honest = to_scale(view, peers, view.gradients.mean(view.mask.x, view.mask.y))
            return finished(view, peers, honest, {"unbounded": 1.0}, tuple(range(len(view.mask))))
        attack = view.gradients.mean(view.targets.x, view.wrong_labels)
        masks = view.gradients.per_sample(view.mask.x, view.mask.y)
        gram = masks.gram().numpy()
        # After local epochs peers are longer than gradients: distances mean something at their scale only.
        factor = _to_median(peers, gram) if view.local == "epochs" and self.objective == "norm" else 1.0
        known = Products(
            attack_square=factor**2 * inner(attack, attack),
            attack_peers=factor * peers.dot(attack),
            attack_masks=factor**2 * masks.dot(attack[None]).numpy()[:, 0],
            masks_masks=factor**2 * gram,
            masks_peers=factor * masks.dot(peers.rows).numpy(),
        )
        if not known.finite():
            # The model has diverged: no angle means anything any more.
            return finished(view, peers, torch.zeros_like(attack), {"diverged": 1.0})
        measure: Measure = Angle(peers.gram) if self.objective == "angle" else Distance(peers.gram)
        selection, step = self._search(known, measure, view.generator)
        weights = torch.zeros(len(masks))
        weights[selection.chosen] = factor / len(selection.chosen)
        update = masks.combine(weights).add_(attack, alpha=factor * step.t)
        dots = known.line(selection.chosen).dots(np.array([step.t]))[0]
        if self.match_norm or (view.local == "epochs" and self.objective == "angle"):
            update, dots = with_norm(update, peers.median_norm), None
        notes = {
            "alpha": step.t,
            "infeasible_steps": float(selection.infeasible_steps),
            "feasible": float(step.feasible),
        }
        return finished(view, peers, update, notes, tuple(selection.chosen), dots)

    def _search(self, known: Products, measure: Measure, generator: torch.Generator) -> tuple[Selection, Step]:
        masks = len(known.masks_peers)
        count = max(1, math.floor(self.gamma * masks + 1e-9))
        alpha = 1.0 if self.alpha == "optimize" else self.alpha
        best: tuple[Selection, Step] | None = None
        for _ in range(1 + self.rounds_of_refinement):
            if self.selection == "random":
                selection = Selection(torch.randperm(masks, generator=generator)[:count].tolist(), 0)
            else:
                selection = greedy(known, measure, count, alpha)
            low, high = (ALPHA_MIN, self.alpha_max) if self.alpha == "optimize" else (alpha, alpha)
            step = farthest_within(known.line(selection.chosen), measure, low, high)
            if best is None or _better(step, best[1], measure):
                best = selection, step
            if self.alpha != "optimize" or self.selection == "random":
                break
            alpha = step.t
        assert best is not None
        return best


def _to_median(peers: Peers, mask_gram: Floats) -> float:
    """What brings the mean mask gradient to the median norm of the peers."""
    size = math.sqrt(max(0.0, float(mask_gram.mean())))
    return peers.median_norm / size if size > 0 and math.isfinite(size) and peers.median_norm > 0 else 1.0


def _better(new: Step, old: Step, measure: Measure) -> bool:
    """Within the bound, farther out (or as far with more attack); outside, nearer to it."""
    if new.feasible != old.feasible:
        return new.feasible
    if not new.feasible:
        return new.worst < old.worst
    if abs(new.worst - old.worst) <= measure.tolerance:
        return new.t > old.t
    return new.worst > old.worst
