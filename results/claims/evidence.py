"""Runs held against each other: two runs that differ in one thing only, seed by seed."""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from results.claims.scope import in_the_paper, unusual_options
from results.files import Collection
from scapegoat.membership.metrics import Estimate
from scapegoat.report.estimate import over_seeds, paired
from scapegoat.report.measures import from_summary

# What all attacks of one comparison must have in common.
SHARED_BY_ATTACKS = ("knowledge", "targets", "mask", "start_round")

# Means over seeds that differ by less are equal but for rounding.
TIE = 1e-9
BEYOND = "Beyond the paper's settings"

# Title, head, rows.
Table = tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]
Test = Callable[["Run"], bool]


@dataclass(frozen=True)
class Run:
    """A run of the result files."""

    name: str
    spec: Mapping[str, Any]
    figures: Mapping[str, Estimate]

    @property
    def attack(self) -> str:
        """The attack's name."""
        return str(self.spec["attack"]["name"])

    @property
    def defense(self) -> str:
        """The rule's name, or those of a pipeline."""
        rule = self.spec["defense"]
        return " + ".join(part["name"] for part in rule) if isinstance(rule, list) else str(rule["name"])

    @cached_property
    def rule(self) -> str:
        """The rule as tables name it: with the options that are not the usual ones for this federation."""
        stated = self.spec["defense"]
        return " + ".join(map(self._rule, stated)) if isinstance(stated, list) else self._rule(stated)

    def _rule(self, stated: Mapping[str, Any]) -> str:
        unusual = unusual_options(stated, self.federation)
        options = ", ".join(f"{key}={value}" for key, value in unusual.items())
        return f"{stated['name']} ({options})" if options else str(stated["name"])

    @cached_property
    def in_the_paper(self) -> bool:
        """Whether the paper's claims are about this run."""
        return in_the_paper(self.spec)

    @property
    def federation(self) -> Mapping[str, Any]:
        """The federation's part of the spec."""
        return dict(self.spec["federation"])

    @property
    def partition(self) -> str:
        """`iid`, or the kind and degree of inequality."""
        partition = self.federation["partition"]
        return "iid" if partition["name"] == "iid" else f"non-iid {partition.get('beta', partition.get('alpha'))}"


@dataclass(frozen=True)
class Comparison:
    """`one` against `other`, alike in all but what is compared; pairs are by seed."""

    one: Run
    other: Run
    pairs: tuple[tuple[Run, Run], ...]

    def difference(self, measure: str = "accuracy_best", comparisons: int = 1) -> Estimate:
        """Mean of one minus other, with an interval that holds for so many comparisons together."""
        return paired([(a.figures[measure], b.figures[measure]) for a, b in self.pairs], comparisons)

    @property
    def in_the_paper(self) -> bool:
        """Whether the paper's claims are about both sides."""
        return self.one.in_the_paper and self.other.in_the_paper

    def sides(self, measure: str = "accuracy_best") -> tuple[Estimate, Estimate]:
        """Both sides over the seeds."""
        first = over_seeds([a.figures[measure] for a, _ in self.pairs])
        return first, over_seeds([b.figures[measure] for _, b in self.pairs])


@dataclass(frozen=True)
class Finding:
    """A claim, what was measured, and whether it holds; `sources` are the runs behind it."""

    claim: str
    verdict: str
    measured: str
    tables: tuple[Table, ...] = ()
    sources: frozenset[str] = field(default_factory=frozenset)


def runs_of(collection: Collection) -> list[Run]:
    """Every run of the result files, in a stable order."""
    return [Run(name, row["spec"], from_summary(row["summary"])) for name, row in sorted(collection.runs.items())]


def compare(runs: Sequence[Run], apart: Iterable[str], one: Test, other: Test) -> list[Comparison]:
    """Runs that satisfy `one` with those that satisfy `other` and differ in nothing but the key paths `apart`."""
    paths = tuple(apart)
    firsts = _grouped((r for r in runs if one(r)), paths)
    seconds = _grouped((r for r in runs if other(r)), paths)
    found = []
    for key, variants in firsts.items():
        for a in variants.values():
            for b in seconds.get(key, {}).values():
                seeds = sorted(a.keys() & b.keys())
                if seeds and a[seeds[0]].name != b[seeds[0]].name:
                    found.append(Comparison(a[seeds[0]], b[seeds[0]], tuple((a[s], b[s]) for s in seeds)))
    return sorted(found, key=_order)


def _order(c: Comparison) -> tuple[str, ...]:
    return setting(c.one), c.one.attack, c.one.rule, c.other.attack, c.other.rule


def cells(
    found: Iterable[Comparison], about: Callable[[Comparison], tuple[Run, ...]] = lambda c: (c.one, c.other)
) -> list[list[Comparison]]:
    """Comparisons about the same runs but for seed and rounds, at one number of rounds only.

    That number is where most comparisons were made, then the longest: a shorter run of a cell is no new evidence.
    """
    by_place: dict[str, dict[int, list[Comparison]]] = defaultdict(lambda: defaultdict(list))
    for c in found:
        by_place["".join(place(run) for run in about(c))][c.one.federation["rounds"]].append(c)
    return [by[max(by, key=lambda rounds: (len(by[rounds]), rounds))] for by in by_place.values()]


def split(found: Iterable[Comparison]) -> tuple[list[Comparison], list[Comparison]]:
    """Comparisons in the paper's settings, which its claims are judged by, and those beyond; each cell once."""
    kept = sorted((c for cell in cells(found) for c in cell), key=_order)
    return [c for c in kept if c.in_the_paper], [c for c in kept if not c.in_the_paper]


def sources(found: Iterable[Comparison]) -> frozenset[str]:
    """The runs behind comparisons."""
    return frozenset(run.name for c in found for pair in c.pairs for run in pair)


def differences(found: Sequence[Comparison], measure: str = "accuracy_best") -> list[Estimate]:
    """What sets the sides of each comparison apart, with intervals that hold together."""
    return [c.difference(measure, comparisons=len(found)) for c in found]


def place(run: Run) -> str:
    """What a run has in common with its repetitions by other seeds and its shorter or longer versions."""
    spec = {key: value for key, value in run.spec.items() if key != "seed"}
    spec["federation"] = {key: value for key, value in run.federation.items() if key != "rounds"}
    return json.dumps(spec, sort_keys=True)


def _grouped(runs: Iterable[Run], apart: Sequence[str]) -> dict[str, dict[str, dict[int, Run]]]:
    """By what runs have in common, then by what sets them apart, then by seed."""
    found: dict[str, dict[str, dict[int, Run]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        common = copy.deepcopy(dict(run.spec))
        seed = common.pop("seed", 0)
        for path in apart:
            _drop(common, path)
        whole = {key: value for key, value in run.spec.items() if key != "seed"}
        found[json.dumps(common, sort_keys=True)][json.dumps(whole, sort_keys=True)][seed] = run
    return found


def _drop(spec: dict[str, Any], path: str) -> None:
    if path == "attack":
        spec["attack"] = {key: spec["attack"].get(key) for key in SHARED_BY_ATTACKS}
        return
    *outer, last = path.split(".")
    node: Any = spec
    for part in outer:
        node = node.get(part) if isinstance(node, dict) else None
    if isinstance(node, dict):
        node.pop(last, None)


def setting(run: Run) -> str:
    """The federation in a few words: what is not the paper's default."""
    federation = run.federation
    words = [str(run.spec["data"]["name"]), run.partition]
    if federation["schedule"]["name"] != "sync":
        words.append(str(federation["schedule"]["name"]))
    if federation["fraction"] != 0.8:
        words.append(f"C = {federation['fraction']:g}")
    if (federation["clients"], federation["malicious"]) != (10, 1):
        words.append(f"{federation['malicious']} of {federation['clients']} malicious")
    server = federation.get("server") or {}
    if (server.get("optimizer", "adam"), server.get("lr", 0.01)) != ("adam", 0.01):
        words.append(f"server {server['optimizer']} {server['lr']:g}")
    if run.spec["attack"].get("knowledge") == "partial":
        words.append("partial knowledge")
    if run.spec["attack"].get("targets") != 300:
        words.append(f"{run.spec['attack'].get('targets')} targets")
    return ", ".join([*words, f"{federation['rounds']} rounds"])


def above(estimate: Estimate, limit: float = 0.0) -> bool:
    """Whether it is clearly above."""
    return estimate.low > limit


def below(estimate: Estimate, limit: float = 0.0) -> bool:
    """Whether it is clearly below."""
    return estimate.high < limit


def judge(found: Sequence[Estimate], *, everywhere: bool, limit: float = 0.0) -> str:
    """What differences that should be above `limit` say. `everywhere`: one clear exception is enough to refute."""
    clear = sum(above(d, limit) for d in found)
    against = sum(below(d, limit) for d in found)
    if not found:
        return "not tested"
    if clear == 0 and against == 0:
        return "undecided"
    if against and (everywhere or not clear):
        return "fails"
    if against:
        return "mixed"
    return "holds" if clear == len(found) else "holds where it can be told"


def tally(found: Sequence[Estimate]) -> str:
    """How the differences fall, in words."""
    if not found:
        return "no runs"
    positive = sum(d.value > TIE for d in found)
    tied = sum(abs(d.value) <= TIE for d in found)
    return (
        f"in its favour in {positive} of {len(found)} comparisons, clearly in {sum(above(d) for d in found)}; "
        f"{f'equal in {tied}; ' if tied else ''}clearly against it in {sum(below(d) for d in found)}"
    )


def ranks(found: Sequence[Sequence[Comparison]]) -> tuple[int, int]:
    """In how many cells the first side is ahead of all others by the means, and in how many level with the best."""
    least = [min(c.difference().value for c in cell) for cell in found]
    return sum(value > TIE for value in least), sum(abs(value) <= TIE for value in least)


def aside(words: str) -> str:
    """A sentence on what does not enter the verdict."""
    return f" {BEYOND}, not judged: {words}." if words else ""


def points(estimate: Estimate) -> str:
    """A difference of accuracies in points, with its interval."""
    text = f"{100 * estimate.value:+.1f}"
    if not estimate.bounded:
        return text
    return f"{text} [{100 * estimate.low:+.1f}, {100 * estimate.high:+.1f}]"


def share(estimate: Estimate) -> str:
    """An accuracy with its interval."""
    if not estimate.bounded:
        return f"{estimate.value:.3f}"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"
