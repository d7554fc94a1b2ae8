"""AGREvader (Zhang et al., 2023): wrong-label gradients blended into normal ones, within the peers' distances."""

from __future__ import annotations

from scapegoat.attacks.base import Attack, AttackerView, Crafted, register
from scapegoat.attacks.measures import Distance, Line
from scapegoat.attacks.search import greatest_within
from scapegoat.attacks.sending import finished, products, to_scale, usable_peers


@register("agrevader")
class AGREvader(Attack):
    """Sends lambda * g_attack + (1 - lambda) * g_mask over all mask samples.

    lambda is the largest in [0, 1] that keeps the Euclidean distance to every peer within the largest between peers,
    solved exactly; if none does, the one that passes the bound least. With fewer than two peers there is no bound, and
    the mask gradient is sent.
    """

    def craft(self, view: AttackerView) -> Crafted:
        """The blend with as much attack as the distances hide."""
        mask = to_scale(view, view.gradients.mean(view.mask.x, view.mask.y))
        peers, gram = usable_peers(view)
        if len(peers) < 2:
            return finished(view, mask, {"lambda": 0.0, "unbounded": 1.0})
        attack = to_scale(view, view.gradients.mean(view.targets.x, view.wrong_labels))
        step = attack - mask
        base, direction = products(mask[None], peers)[0], products(step[None], peers)[0]
        line = Line(
            base,
            direction,
            base_square=float(products(mask[None], mask[None])[0, 0]),
            cross=float(products(mask[None], step[None])[0, 0]),
            direction_square=float(products(step[None], step[None])[0, 0]),
        )
        best = greatest_within(line, Distance(gram), 0.0, 1.0)
        return finished(view, mask.add_(step, alpha=best.t), {"lambda": best.t, "feasible": float(best.feasible)})
