"""Flower's own processes as quiet as an audit needs them."""

from __future__ import annotations

from pathlib import Path


def quiet(home: Path) -> dict[str, str]:
    """Flower without telemetry, update checks and installations, with its files in `home`."""
    return {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }
