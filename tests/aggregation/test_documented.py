"""The page of the rules names every rule and option, and its example of a rule of one's own works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from scapegoat.aggregation import get, registry

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_every_rule_and_option_is_on_the_page() -> None:
    text = PAGE.read_text()
    for name, cls in registry.classes():
        row = next((line for line in text.splitlines() if line.startswith(f"| `{name}` |")), None)
        assert row is not None, name
        if name in ("clipped_atm", "multi_krum"):
            continue  # the row says "also"
        for option in cls.model_fields:
            assert f"`{option}" in row, f"{name}.{option}"


def test_the_example_of_a_rule_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(from scapegoat.aggregation.*?)```", PAGE.read_text(), re.DOTALL)
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    exec(code, {"__name__": "example"})
    answer = get("shortest")(torch.tensor([[3.0, 4.0], [1.0, 0.0], [float("nan"), 0.0]]))
    assert answer.update.tolist() == [1.0, 0.0]
    assert answer.kept.tolist() == [False, True, False]
    assert answer.rejected.tolist() == [False, False, True]
