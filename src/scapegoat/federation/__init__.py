"""Clients, schedules, the server and the round loop."""

from scapegoat.federation.record import RoundRecord
from scapegoat.federation.setting import FederationSetting
from scapegoat.federation.simulation import Simulation

__all__ = ["FederationSetting", "RoundRecord", "Simulation"]
