"""Clients, the attacker's seat, schedules, the server; `simulation` is the round loop.

The loop is not imported here: a live federation stands on the same parts without it.
"""

from scapegoat.federation.cast import Cast
from scapegoat.federation.record import RoundRecord
from scapegoat.federation.setting import FederationSetting

__all__ = ["Cast", "FederationSetting", "RoundRecord"]
