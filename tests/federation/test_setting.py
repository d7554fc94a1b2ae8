import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from scapegoat.federation import FederationSetting

ASYNC = {"name": "async"}


@given(st.integers(1, 300), st.floats(1e-8, 1))
def test_a_fraction_picks_somebody(clients, fraction):
    assert 1 <= FederationSetting(clients=clients, malicious=0, fraction=fraction).picked <= clients


@given(st.integers(1, 300), st.floats(0, 1e-12, exclude_min=True))
def test_a_fraction_that_picks_nobody_is_refused(clients, fraction):
    with pytest.raises(ValidationError, match="picks nobody"):
        FederationSetting(clients=clients, malicious=0, fraction=fraction)


def test_a_buffer_may_gather_updates_over_rounds_but_must_fill_once():
    kept = FederationSetting(clients=10, fraction=0.8, rounds=3, schedule={**ASYNC, "buffer": 24})
    assert kept.updates_per_step == 24 > kept.picked
    with pytest.raises(ValidationError, match=r"25 updates never arrive: 3 rounds of 8 clients .*1 to 24"):
        FederationSetting(clients=10, fraction=0.8, rounds=3, schedule={**ASYNC, "buffer": 25})
