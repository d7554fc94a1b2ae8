"""The federation's part of a spec."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, model_validator

from scapegoat.data.partitions import IID, Partition
from scapegoat.data.partitions import registry as partitions
from scapegoat.errors import OptionError
from scapegoat.federation.local import Gradient, LocalRule
from scapegoat.federation.local import registry as local_rules
from scapegoat.federation.schedule import Schedule, Synchronous
from scapegoat.federation.schedule import registry as schedules
from scapegoat.optimizers import OptimizerOptions
from scapegoat.registry import Component

_written = PlainSerializer(Component.canonical)


class FederationSetting(BaseModel):
    """Who takes part, how often, and how the server steps."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    clients: Annotated[int, Field(ge=1)] = 10
    malicious: Annotated[int, Field(ge=0)] = 1
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.8
    rounds: Annotated[int, Field(ge=1)] = 400
    batch_size: Annotated[int, Field(ge=1)] = 64
    partition: Annotated[Partition, PlainValidator(partitions.parse), _written] = IID()
    local: Annotated[LocalRule, PlainValidator(local_rules.parse), _written] = Gradient()
    server: OptimizerOptions = OptimizerOptions()
    schedule: Annotated[Schedule, PlainValidator(schedules.parse), _written] = Synchronous()

    @model_validator(mode="before")
    @classmethod
    def _server_of_local_rule(cls, values: Any) -> Any:
        # After local epochs the server takes the mean of the clients' models, unless it is told otherwise.
        if isinstance(values, dict) and "server" not in values and _name(values.get("local")) == "epochs":
            return {**values, "server": {"optimizer": "sgd", "lr": 1.0}}
        return values

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
    def picked(self) -> int:
        """Clients picked a round: ceil(C n)."""
        return min(self.clients, math.ceil(self.fraction * self.clients - 1e-9))

    @property
    def benign(self) -> int:
        """Clients that are not malicious; their ids are 0..benign-1."""
        return self.clients - self.malicious

    @property
    def updates_per_step(self) -> int:
        """Updates that the rule sees at once."""
        return self.schedule.step_size(self.picked)


def _name(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return value.get("name")
    return getattr(value, "name", None)
