"""The federation's part of a spec."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, model_validator

from scapegoat import protections
from scapegoat.crafting.contract import Held
from scapegoat.data.partitions import IID, Partition
from scapegoat.data.partitions import registry as partitions
from scapegoat.errors import InputError, OptionError
from scapegoat.federation.local import Gradient, LocalRule
from scapegoat.federation.local import registry as local_rules
from scapegoat.federation.schedule import Schedule, Synchronous
from scapegoat.federation.schedule import registry as schedules
from scapegoat.optimizers import OptimizerOptions
from scapegoat.protecting.listed import written
from scapegoat.protections import ClientProtection, Protection, ServerProtection
from scapegoat.randomness import numpy_generator
from scapegoat.registry import Component, added

_written = PlainSerializer(Component.canonical)


class FederationSetting(BaseModel):
    """Who takes part, how often, and how the server steps."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    clients: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    """Clients that exist."""
    malicious: Annotated[int, Field(ge=0)] = 1
    """Hostile ones among them."""
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Share of the clients picked per round."""
    rounds: Annotated[int, Field(ge=1, le=1_000_000)] = 400
    """Rounds of training."""
    batch_size: Annotated[int, Field(ge=1, le=1_000_000_000)] = 64
    """Records per mini-batch."""
    partition: Annotated[Partition, PlainValidator(partitions.parse), _written] = IID()
    """How records are spread over clients."""
    local: Annotated[LocalRule, PlainValidator(local_rules.parse), _written] = Gradient()
    """What a client computes and sends."""
    server: OptimizerOptions = OptimizerOptions()
    """How the server steps."""
    schedule: Annotated[Schedule, PlainValidator(schedules.parse), _written] = Synchronous()
    """When updates arrive."""
    updates: Held = added("float32")
    """What the updates of a round are held in; bfloat16 takes half the memory, and is read in float32 in pieces."""
    protect: Annotated[tuple[Protection, ...], PlainValidator(protections.parse), PlainSerializer(written)] = added(())
    """What is done in training, on the server and on clients, so that it tells less about records."""

    @model_validator(mode="before")
    @classmethod
    def _server_of_local_rule(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "server" in values or "local" not in values:
            return values
        try:
            return {**values, "server": local_rules.parse(values["local"]).server}
        except InputError:
            return values  # the field's own check says what is wrong with it

    @model_validator(mode="after")
    def _someone_honest(self) -> FederationSetting:
        if self.malicious >= self.clients:
            raise OptionError(
                "malicious",
                f"{self.malicious} of {self.clients} clients leaves nobody honest (allowed: 0 to {self.clients - 1})",
            )
        return self

    @model_validator(mode="after")
    def _someone_picked(self) -> FederationSetting:
        if self.picked == 0:
            raise OptionError(
                "fraction",
                f"{self.fraction} of {self.clients} clients picks nobody; {1 / self.clients:g} picks one "
                f"(allowed: up to 1)",
            )
        return self

    @model_validator(mode="after")
    def _clients_can_protect(self) -> FederationSetting:
        if self.client_protections and not self.local.protectable:
            name = self.client_protections[0].name
            raise OptionError("protect", f"{name} acts in the steps of clients, which {self.local.name} does not show")
        return self

    @model_validator(mode="after")
    def _server_steps(self) -> FederationSetting:
        arriving = self.picked * self.rounds
        if self.updates_per_step > arriving:
            raise OptionError(
                "schedule.buffer",
                f"{self.updates_per_step} updates never arrive: {self.rounds} rounds of {self.picked} clients bring "
                f"{arriving} (allowed: 1 to {arriving})",
            )
        return self

    @property
    def client_protections(self) -> tuple[ClientProtection, ...]:
        """Those of `protect` that clients apply."""
        return tuple(p for p in self.protect if isinstance(p, ClientProtection))

    @property
    def server_protections(self) -> tuple[ServerProtection, ...]:
        """Those of `protect` that the server applies."""
        return tuple(p for p in self.protect if isinstance(p, ServerProtection))

    @property
    def picked(self) -> int:
        """Clients picked per round: ceil(C n)."""
        return min(self.clients, math.ceil(self.fraction * self.clients - 1e-9))

    def pick(self, seed: int, round_: int) -> list[int]:
        """The clients of a round, in the order of their ids."""
        if self.picked == self.clients:
            return list(range(self.clients))
        chosen = numpy_generator(seed, "pick", round_).choice(self.clients, self.picked, replace=False)
        return sorted(int(c) for c in chosen)

    @property
    def benign(self) -> int:
        """Clients that are not malicious; their ids are 0..benign-1."""
        return self.clients - self.malicious

    @property
    def updates_per_step(self) -> int:
        """Updates that the rule sees at once."""
        return self.schedule.step_size(self.picked)
