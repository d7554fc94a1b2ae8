"""Reference federations: the same targets, trained with other coins, so that a score knows what a margin means.

They are ordinary runs, named by their hash, computed by the same executors into the same store, and never twice. The
scores that need them are computed when somebody reads them; a run that is stored never changes.

    references = reference_specs(spec, 16)
    execute([spec, *references], store, jobs=2)
    margins, included = reference_margins(store, references, records)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from scapegoat.errors import InputError, OptionError
from scapegoat.experiments.spec import Spec, parse
from scapegoat.experiments.store import RunStore
from scapegoat.experiments.summary import stored_scores
from scapegoat.membership.assessment import Scored, referenced_scores
from scapegoat.membership.guards import permutation_p
from scapegoat.membership.references import agreement
from scapegoat.membership.scoring import Bools, Floats

WATCHING = {"name": "passive"}
AVERAGING = {"name": "fedavg"}
FITTING = 0.5
"""The least agreement of references with a run whose scores they help."""
SHARED_BY_ATTACKS = ("targets", "mask")
"""What of the attack decides who trains on what."""


def reference_specs(
    spec: Spec,
    count: int,
    *,
    attack: dict[str, Any] | Literal["same"] = WATCHING,
    defense: dict[str, Any] | Literal["same"] = AVERAGING,
) -> list[Spec]:
    """The first `count` reference federations of an audited one.

    Parameters
    ----------
    spec: the audited federation; its targets must be drawn by coins.
    count: how many references.
    attack: what the attacker does in them. Watching by default, so that all cells of an audit share them; `same`
        rehearses the attack itself.
    defense: the rule in them. Plain averaging by default, for the same reason; `same` is the audited one.

    Returns
    -------
    Specs that differ from each other in `evaluation.reference` alone; the first are the same for a larger count.
    """
    if spec.evaluation.design != "coin":
        raise OptionError(
            "evaluation.design",
            f"{spec.evaluation.design!r} has no reference federations: only coins are tossed again (allowed: 'coin')",
        )
    if count < 1:
        raise InputError(f"references: {count} is not allowed (1 or more)")
    plain = spec.canonical()
    if attack != "same":
        plain["attack"] = {key: getattr(spec.attack, key) for key in SHARED_BY_ATTACKS} | attack
    if defense != "same":
        plain["defense"] = defense
    # What else the audited run looks at does not change a target's margin.
    plain["evaluation"] = {"every": spec.evaluation.every, "design": spec.evaluation.design}
    return [parse({**plain, "evaluation": {**plain["evaluation"], "reference": k}}) for k in range(1, count + 1)]


def reference_margins(store: RunStore, specs: Sequence[Spec], records: np.ndarray) -> tuple[Floats, Bools]:
    """Final margins [references, targets] of these records in reference runs, and which of them each trained on.

    Parameters
    ----------
    store: where the runs are.
    specs: the references, with the content of a user's own files pinned as in the audited run's `spec.json`.
    records: [targets], row numbers in the data, in the order that the columns will have.
    """
    margins = np.empty((len(specs), len(records)))
    included = np.empty((len(specs), len(records)), dtype=bool)
    for row, spec in enumerate(specs):
        if not store.has(spec.hash):
            raise InputError(
                f"{store.directory}: reference federation {spec.evaluation.reference} ({spec.hash[:12]}) is not there; "
                f"compute it first"
            )
        table = store.targets(spec.hash)
        known = table["record"].to_numpy()
        order = np.argsort(known, kind="stable")
        place = order[np.searchsorted(known[order], records).clip(max=len(known) - 1)]
        if not np.array_equal(known[place], records):
            raise InputError(
                f"{store.path(spec.hash)}: has other targets than the audited run; references share its seed and data"
            )
        margins[row] = table["score_final"].to_numpy()[place]
        included[row] = table["member"].to_numpy(zero_copy_only=False)[place]
    return margins, included


def with_references(store: RunStore, name: str, specs: Sequence[Spec]) -> tuple[dict[str, Any], pa.Table]:
    """A stored run's `membership` and `validity`, and its targets, with the scores that compare it with references.

    The worst score and epsilon then pay for these scores too. References that do not fit the run (`agreement` below
    `FITTING`) add none, and `references_reason` says so. Nothing is written: the run stays as it is.
    """
    targets, summary = store.targets(name), store.summary(name)
    member = targets["member"].to_numpy(zero_copy_only=False)
    own = stored_scores(targets)
    margins = targets["score_final"].to_numpy()[None]
    references = reference_margins(store, specs, targets["record"].to_numpy())
    fit = agreement(margins, references[0])
    if fit < FITTING:
        reason = (
            f"references do not fit: they foretell these margins {fit:.2f} times as well as each other's (allowed: "
            f"{FITTING:g} or more); rehearse the attack in them"
        )
        unhelped = {"references": len(specs), "references_agreement": fit, "references_reason": reason}
        return {"membership": {**summary["membership"], **unhelped}}, targets
    added = referenced_scores(margins, *references)
    scored = Scored(member=member, coins=parse(store.spec(name)).evaluation.design == "coin", scores=own | added)
    tested = {key: permutation_p(values, member) for key, values in added.items()}
    validity = {**summary["validity"], "permutation_p": {**summary["validity"]["permutation_p"], **tested}}
    figures = scored.figures() | {"references": len(specs), "references_agreement": fit}
    for key, values in added.items():
        targets = targets.append_column(f"score_{key}", pa.array(values, pa.float64()))
    return {"membership": {**summary["membership"], **figures}, "validity": validity}, targets
