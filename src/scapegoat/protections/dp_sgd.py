"""Record-level differential privacy: every step of a client is a Gaussian mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from scapegoat.accounting import Sampling, require_library
from scapegoat.errors import OptionError
from scapegoat.gradients.clipped import refuse_mixing
from scapegoat.kernels.gaussian import require_cipher
from scapegoat.modelling.flat_model import FlatModel
from scapegoat.protecting.contract import ClientProtection, Protection, ServerProtection, register
from scapegoat.protecting.privacy import GaussianMechanism


@register("dp_sgd")
class DPSGD(ClientProtection):
    """Each record's gradient is clipped, and each step's sum gets Gaussian noise (Abadi et al., 2016, Algorithm 1).

    The noise has standard deviation noise · clip, and the sum is divided by the expected batch size. The summary tells
    the (epsilon, delta) of each client's records for the steps that it took.
    """

    clip: Annotated[float, Field(gt=0)] = 1.0
    """Norm to which each record's gradient is clipped."""
    noise: Annotated[float, Field(ge=0)] = 1.0
    """Standard deviation of the noise per clipping norm; decides epsilon."""
    sampling: Sampling = "poisson"
    """Each record with the same probability, or a fixed number of them: decides what epsilon is about."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """The delta for which epsilon is reported."""

    @property
    def mechanism(self) -> GaussianMechanism:
        """Clipping and noise as the options say."""
        return GaussianMechanism(self.clip, self.noise, self.sampling, self.delta)

    def fits(self, model: FlatModel) -> None:
        """Every record must have a gradient of its own."""
        if self.noise:
            require_library()
            require_cipher()
        refuse_mixing(model)

    def beside(self, others: Sequence[Protection]) -> None:
        """Refuse what would make the epsilon untrue."""
        for other in others:
            if isinstance(other, ClientProtection) and other.mixes_records:
                raise OptionError(
                    "", f"no epsilon would hold with {other.name}, which makes one example of several records"
                )
            if isinstance(other, ClientProtection) and other.mechanism is not None:
                raise OptionError("", f"{other.name} clips and adds noise too; one of the two is allowed")
            if isinstance(other, ServerProtection) and other.listens:
                raise OptionError(
                    "", f"no epsilon would hold with {other.name} as it is set: it decides by losses without noise"
                )
