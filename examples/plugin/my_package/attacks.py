"""An attack: the gradient of the wrong labels, much louder than anybody else."""

from typing import Annotated

from pydantic import Field

from scapegoat.attacks import Attack, AttackerView, Crafted, register


@register("loud")
class Loud(Attack):
    """Sends the gradient of the targets with wrong labels, `volume` times over."""

    uses_peers = False
    volume: Annotated[float, Field(gt=0, description="How many times the gradient is sent.")] = 10.0

    def craft(self, view: AttackerView) -> Crafted:
        """`view` is all that an attack may see; one row per hostile client goes back."""
        gradient = view.gradients.mean(view.targets.x, view.wrong_labels)
        return Crafted((self.volume * gradient).expand(view.senders, -1).clone())
