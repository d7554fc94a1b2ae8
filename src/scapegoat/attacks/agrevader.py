"""AGREvader (Zhang et al., 2023): wrong-label gradients blended into normal ones, within the peers' distances."""

from __future__ import annotations

from scapegoat.crafting.contract import Attack, AttackerView, Crafted, register
from scapegoat.crafting.measures import Distance, Line
from scapegoat.crafting.search import greatest_within
from scapegoat.crafting.sending import Peers, finished, inner, to_scale


@register("agrevader")
class AGREvader(Attack):
    """Sends lambda * g_attack + (1 - lambda) * g_mask over all mask samples.

    lambda is the largest in [0, 1] that keeps the Euclidean distance to every peer within the largest between peers,
    solved exactly; if none does, the one that passes the bound least. With fewer than two peers there is no bound, and
    the mask gradient is sent.
    """

    takes_bfloat16 = True
    least_peers = 2

    def craft(self, view: AttackerView) -> Crafted:
        """The blend with as much attack as the distances hide."""
        peers = Peers.of(view)
        mask = to_scale(view, peers, view.gradients.mean(view.mask.x, view.mask.y))
        if len(peers) < 2:
            return finished(view, peers, mask, {"lambda": 0.0, "unbounded": 1.0})
        attack = to_scale(view, peers, view.gradients.mean(view.targets.x, view.wrong_labels))
        step = attack - mask
        line = Line(
            base=peers.dot(mask),
            direction=peers.dot(step),
            base_square=inner(mask, mask),
            cross=inner(mask, step),
            direction_square=inner(step, step),
        )
        best = greatest_within(line, Distance(peers.gram), 0.0, 1.0)
        return finished(
            view, peers, mask.add_(step, alpha=best.t), {"lambda": best.t, "feasible": float(best.feasible)}
        )
