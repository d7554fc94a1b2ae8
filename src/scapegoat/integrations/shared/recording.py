"""What is written down about a round of a live federation: one line of JSON, whatever framework runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from scapegoat import geometry
from scapegoat.integrations.shared.faults import NDArray
from scapegoat.integrations.shared.rounds import Node, RoundReport


def round_line(
    round_: int,
    rows: Mapping[Any, NDArray],
    report: RoundReport | None,
    *,
    rejected: Mapping[Any, str],
    failed: Mapping[Any, str],
    losses: Mapping[Any, float],
) -> dict[str, Any]:
    """The line of a round (from 1): who replied, how far apart (`rows` are updates by node), and who was kept.

    `kept` is what a strategy of ours reports; for any other it is None, since nobody outside it knows.
    """
    nodes: list[Node] = sorted(rows)
    aside: dict[Node, str] = {**rejected}
    if report is not None:
        aside |= report.set_aside
        nodes = [node for node in report.nodes if node in rows]
    stack = torch.from_numpy(np.stack([rows[node] for node in nodes])) if nodes else torch.empty(0, 1)
    gram = geometry.gram(stack)
    return {
        "round": round_,
        "nodes": nodes,
        "kept": None if report is None else [node in set(report.kept_nodes) for node in nodes],
        "set_aside": {str(node): reason for node, reason in aside.items()},
        "failed": {str(node): reason for node, reason in failed.items()},
        "silent": list(report.silent) if report is not None else [],
        "skipped": report.skipped if report is not None else None,
        "norm": geometry.norms(gram).tolist(),
        "mean_angle": geometry.mean_angles(gram).tolist(),
        "loss": {str(node): loss for node, loss in losses.items()},
        "notes": dict(report.notes) if report is not None else {},
    }
