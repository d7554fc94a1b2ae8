"""The passive attack: train honestly and watch."""

from __future__ import annotations

from scapegoat.crafting.contract import Attack, AttackerView, Crafted, register


@register("passive")
class Passive(Attack):
    """Sends what honest clients with the mask data would send, and only observes the global model."""

    takes_bfloat16 = True
    poisons = False
    uses_peers = False
    looks = False

    def craft(self, view: AttackerView) -> Crafted:
        """The honest updates."""
        return Crafted(view.honest())
