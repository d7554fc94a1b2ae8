import pytest


@pytest.fixture
def small():
    """A federation that runs in about a second."""
    return {
        "data": {"name": "hospital", "records": 700, "features": 60, "classes": 5, "validation": 40},
        "model": {"name": "mlp", "hidden": [32]},
        "federation": {"clients": 6, "rounds": 12, "batch_size": 16},
        "attack": {"name": "fedpoisonmia", "targets": 40, "mask": 30},
        "defense": {"name": "atm", "trim": 1},
        "evaluation": {"every": 4},
    }
