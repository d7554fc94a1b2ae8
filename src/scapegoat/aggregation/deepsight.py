"""DeepSight (Rieger et al. 2022): look into the updates of the output layer, cluster, and drop suspect clusters."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from scapegoat import geometry
from scapegoat.aggregation.norm_clipping import clipped, median_of
from scapegoat.combining.clustering import IMPORTED, hdbscan
from scapegoat.combining.rule import Aggregate, AggregationContext, Rule, Stack, check_several, register
from scapegoat.combining.stack import screened
from scapegoat.devices import exact, host
from scapegoat.errors import InputError

NamedShapes = Sequence[tuple[str, tuple[int, ...]]]
Probe = Callable[[Tensor, int], Tensor]

SEEDS = 3
"""Batches of noise for the division differences, as in the paper."""


@screened()
def deepsight(
    stack: Stack,
    layout: NamedShapes,
    probe: Probe | None = None,
    suspects: float = 1 / 3,
    min_cluster_size: int = 3,
    first_seed: int = 0,
) -> Aggregate:
    """Mean of the clipped updates of the clusters in which fewer than `suspects` of the clients are suspect.

    - Normalized update energies (NEUPs): for output neuron p, E_p = |b_p| + sum_h |w_ph| of the update, C_p = E_p² /
      sum_q E_q². A client's threshold exceedings are the C_p above max(0.01, 1/P) · max_p C_p. A client with at most
      half of the median number of exceedings is suspect: its data were unusually homogeneous.
    - Division differences (DDifs): mean over noise inputs of the class probabilities of the client's model divided by
      those of the global model, for three batches of noise.
    - Cosine distances between the updates of the output layer's bias (of its weights, if it has no bias).
    - HDBSCAN on each; two clients are 0 apart if a clustering gives both the same label, else 1; HDBSCAN on the mean of
      the three (the DDifs' being the mean over their batches) gives the clusters. A client in no cluster is one of its
      own.
    - The updates kept are clipped to the median norm of all.

    Without a `probe` the division differences are left out of the vote, and the notes say so.

    Examples
    --------
    >>> import torch
    >>> updates = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    >>> layout = [("out.weight", (2, 3)), ("out.bias", (2,))]
    >>> deepsight(updates, layout).update.shape
    torch.Size([8])
    """
    weight, bias = output_layer(stack, layout)
    energies = weight.abs().sum(2) + (0 if bias is None else bias.abs())
    neups, suspect = _normalized_energies(host(energies).double())
    directions = weight.flatten(1) if bias is None else bias
    cluster = functools.partial(hdbscan, keys=stack.norms(), min_cluster_size=min_cluster_size)
    votes = [
        _apart(cluster(_cosine_distances(directions), distances=True)),
        _apart(cluster(neups, distances=False)),
    ]
    if probe is not None:
        by_seed = [
            _apart(cluster(differences, distances=False))
            for differences in division_differences(stack, probe, first_seed)
        ]
        votes.append(torch.stack(by_seed).mean(0))
    together = torch.stack(votes).mean(0)
    clusters = cluster(together, distances=True, single=True)
    kept = _accepted(clusters, suspect, suspects)
    changed, bound = clipped(stack)
    notes = {"clip": bound, "suspects": float(suspect.sum()), "division_differences": float(probe is not None)}
    return changed.aggregate(changed.mean(kept), kept, notes) if bool(kept.any()) else stack.nothing(notes)


def output_layer(stack: Stack, layout: NamedShapes) -> tuple[Tensor, Tensor | None]:
    """Updates of the output layer: weights [n, P, h] and bias [n, P], or None.

    It is the last parameter with two or more dimensions, and the one after it if that is a vector of P.
    """
    sizes = [math.prod(shape) for _, shape in layout]
    matrices = [i for i, (_, shape) in enumerate(layout) if len(shape) >= 2]
    if not matrices or sum(sizes) != stack.d:
        raise InputError(
            f"deepsight needs the output layer: the layout has {len(matrices)} weight matrices and {sum(sizes)} "
            f"parameters, the updates have {stack.d}"
        )
    at = matrices[-1]
    start, classes = sum(sizes[:at]), layout[at][1][0]
    wide = exact(stack.device)
    weight = torch.stack(stack.columns(start, start + sizes[at])).to(wide).reshape(len(stack), classes, -1)
    if at + 1 == len(layout) or layout[at + 1][1] != (classes,):
        return weight, None
    start += sizes[at]
    return weight, torch.stack(stack.columns(start, start + classes)).to(wide)


def division_differences(stack: Stack, probe: Probe, first_seed: int = 0) -> list[Tensor]:
    """DDifs [n, P] for each batch of noise; outputs that are not numbers count as zero."""
    out = []
    for seed in range(first_seed, first_seed + SEEDS):
        before = probe(torch.zeros(stack.d, device=stack.device), seed)
        before = before.to(exact(before.device)).clamp_min(1e-6)
        rows = []
        for i, row in enumerate(stack.rows):
            update = row if stack.scale is None else row * float(stack.scale[i])
            ratio = probe(update, seed).to(before.dtype) / before
            rows.append((ratio.mean(0) if ratio.dim() == 2 else ratio).nan_to_num(0.0, 0.0, 0.0))
        out.append(host(torch.stack(rows)).double())
    return out


def _normalized_energies(energies: Tensor) -> tuple[Tensor, Tensor]:
    """NEUPs [n, P], and who is suspect [n]."""
    squares = energies.square()
    total = squares.sum(1, keepdim=True)
    neups = torch.where(total > 0, squares / total.clamp_min(1e-300), 0.0)
    threshold = max(0.01, 1 / energies.shape[1]) * neups.max(1, keepdim=True).values
    exceedings = (neups > threshold).sum(1).double()
    return neups, exceedings <= median_of(exceedings) / 2


def _cosine_distances(rows: Tensor) -> Tensor:
    return (1 - geometry.angles(host(rows @ rows.T).double()).cos()).fill_diagonal_(0)


def _apart(labels: Tensor) -> Tensor:
    return (labels[:, None] != labels[None, :]).double()


def _accepted(clusters: Tensor, suspect: Tensor, allowed: float) -> Tensor:
    kept = ~suspect  # alone in its cluster, a client answers for itself
    for label in range(int(clusters.max()) + 1):
        members = clusters == label
        kept[members] = float(suspect[members].double().mean()) < allowed
    return kept


@register("deepsight")
class DeepSight(Rule):
    """Cluster clients by what their updates do to the output layer; drop clusters with too many suspects; clip."""

    probes = True

    suspects: Annotated[float, Field(gt=0, le=1)] = 1 / 3
    """Share of suspects from which on a cluster is dropped."""
    min_cluster_size: Annotated[int, Field(ge=2)] = 3
    """Fewest updates that make a cluster."""

    def needs(self, updates: int, d: int) -> int:
        """The rows of the output layer, a probed model, and the library that clusters."""
        return 5 * d + IMPORTED

    def aggregate(self, stack: Stack, context: AggregationContext) -> Aggregate:
        """The mean of the clipped updates of the clusters accepted."""
        if context.layout is None:
            raise InputError("deepsight needs to know the output layer: context.layout is missing")
        seed = SEEDS * context.round
        return deepsight(stack, context.layout, context.output_probe, self.suspects, self.min_cluster_size, seed)

    def check(self, updates_per_step: int) -> None:
        """One update makes no clusters."""
        check_several(self.name, updates_per_step)
