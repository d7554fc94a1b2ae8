"""From an audit's matrix to a plan: the search, and what it found as the report shows it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from scapegoat.auditing import plan_lines, plan_words
from scapegoat.auditing.candidates import Bench, Candidate, rule_text
from scapegoat.auditing.elimination import PLAIN, WATCHING
from scapegoat.auditing.helping import Helping
from scapegoat.auditing.run_figures import Found, found_in
from scapegoat.auditing.searching import MOST_HELD, Go, Search
from scapegoat.errors import InputError
from scapegoat.experiments import RunStore, Spec, parse
from scapegoat.experiments.executors import Failure, Outcome, named
from scapegoat.experiments.references import with_references
from scapegoat.experiments.run import Result
from scapegoat.report.estimate import over_seeds
from scapegoat.report.planned import Option, Plan, Stop

BUDGET = 0.03
"""Test accuracy that a plan may cost, unless the user says otherwise."""


class Planner:
    """Searches a plan around an audit's matrix, and tells what it found."""

    def __init__(
        self,
        planned: Mapping[str, Spec],
        store: RunStore,
        outcome: Outcome,
        go: Go,
        budget: float,
        root: str | Path | None = None,
        helping: Helping | None = None,
        *,
        spread: bool = False,
    ) -> None:
        """`spread`: seeds after the first are for the recommended setting, not for today's as well."""
        self._store, self._outcome, self._budget, self._root = store, outcome, budget, root
        self._execute, self._spread = go, spread
        self._known: dict[str, Found] = {}
        self._best: Candidate | None = None
        self._matrix = list(planned.values())
        self._helping = helping or Helping()
        self._bench = Bench(self._matrix, PLAIN, root, held=bool(self._helping))
        self._helpers: dict[str, list[Spec]] = {}
        self._search = Search(self._bench, self._look, self._go, budget, self._hold if self._helping else None)

    def _go(self, specs: Iterable[Spec]) -> None:
        """Compute what is not known yet; the longest first, so that all end together."""
        todo = self._unknown(specs)
        if todo:
            self._execute(sorted(todo, key=lambda spec: -getattr(spec.attack, "evaluations", 0)))

    def _unknown(self, specs: Iterable[Spec]) -> list[Spec]:
        """What this audit has neither computed nor failed to."""
        known = {*self._outcome.summaries, *self._outcome.failures}
        return [spec for name, spec in named(specs, self._root).items() if name not in known]

    def opening(self) -> list[Spec]:
        """What the search needs whatever the matrix says: it can run beside the matrix's first runs."""
        return self._search.opening()

    def expected(self) -> int:
        """About how many runs the search adds to the matrix."""
        bench = self._bench
        offered = bench.of_rule(bench.bounded)
        attacks = len(bench.attacks(offered[0] if offered else bench.today))
        helped = MOST_HELD * self._helping.count * (attacks if self._helping.rehearse else 1)
        kinds = len({candidate.kind for candidate in offered}) if self._helping else 1
        seeds = len(bench.seeds) - 1 if self._spread else 0
        return 3 * len(offered) + (kinds + 1 + seeds) * attacks + helped

    def first(self, chosen: Iterable[Spec]) -> list[Spec]:
        """What the search will need first once the first seed of the matrix is there: it can run beside the others."""
        return self._unknown(self._search.watched(self._rules(chosen))) if self._can_start() else []

    def _can_start(self) -> bool:
        """Whether today's setting has a run to start from, and one that says something."""
        watched = self._look(self._bench.name(self._bench.today, WATCHING))
        return watched is not None and not watched.doubt

    def refused(self) -> str:
        """Why no plan was searched though today's setting has a run; empty if one was."""
        watched = self._look(self._bench.name(self._bench.today, WATCHING))
        if self._best is not None or watched is None or not watched.doubt:
            return ""
        return f"No plan was searched: {watched.doubt}."

    def find(self, chosen: Iterable[Spec]) -> Plan | None:
        """The plan; `chosen` are the matrix's runs that count. None if today's setting has no run to start from."""
        bench, search = self._bench, self._search
        if not self._can_start():
            return None
        best = self._best = search.run(self._rules(chosen))
        repeated = dict.fromkeys((best,) if self._spread else (bench.today, best))
        self._go(
            bench.spec(c, attack, seed) for seed in bench.seeds[1:] for c in repeated for attack in bench.attacks(c)
        )
        for seed in bench.seeds[1:]:
            for candidate in repeated:
                self._hold(candidate, seed)
        options = {c: found for c in search.met if (found := self._option(c)) is not None}
        today, chosen_option = options[bench.today], options[best]
        tried = len(options)
        fresh, confirmed = None if best == bench.today else self._option(best, bench.seeds[1:]), None
        if fresh is not None:
            beside = self._option(bench.today, bench.seeds[1:]) or today
            confirmed = search.confirms(beside.leakage.value, fresh.leakage.value, fresh.cost)
        return Plan(
            budget=self._budget,
            today=today,
            recommended=chosen_option,
            options=tuple(options.values()),
            headline=plan_words.headline(today, chosen_option),
            sentences=plan_words.sentences(
                today, chosen_option, self._budget, tried, fresh, confirmed, coins=self._coins()
            ),
            do=plan_lines.lines(chosen_option, self._matrix[0]),
            failed=tuple(self._failed()),
            confirmed=confirmed,
        )

    def results(self) -> tuple[Result, ...]:
        """The runs of the recommended setting, once it is found, with the scores of their references."""
        best, store = self._best, self._store
        found: list[Result] = []
        if best is None:
            return ()
        for seed in self._bench.seeds:
            for attack in self._bench.attacks(best):
                name = self._bench.name(best, attack, seed)
                if self._look(name) is not None:
                    helped, targets = self._helped(name) or ({}, store.targets(name))
                    summary = {**self._outcome.summaries[name], **helped}
                    found.append(Result(self._bench.spec(best, attack, seed), summary, store.rounds(name), targets))
        return tuple(found)

    def _coins(self) -> bool:
        """Whether there can be reference federations."""
        return self._matrix[0].evaluation.design == "coin"

    def _hold(self, candidate: Candidate, seed: int | None = None) -> None:
        """Train the references of a candidate with a seed; what is told of its runs takes them in from now on."""
        bench = self._bench
        runs = {bench.name(candidate, a, seed): bench.spec(candidate, a, seed) for a in bench.attacks(candidate)}
        wanted = {name: named(self._helping.of(spec), self._root) for name, spec in runs.items()}
        self._go(spec for found in wanted.values() for spec in found.values())
        for name, found in wanted.items():
            self._helpers[name] = [spec for key, spec in found.items() if key in self._outcome.summaries]
            self._known.pop(name, None)

    def _helped(self, name: str) -> tuple[dict[str, Any], pa.Table] | None:
        """A run's figures and targets with the scores of its references; None where it has none."""
        helpers = self._helpers.get(name)
        return with_references(self._store, name, helpers) if helpers else None

    def _rules(self, chosen: Iterable[Spec]) -> list[str]:
        """Averaging, and the one other rule that leaks least to its worst attack."""
        bench, search = self._bench, self._search
        others = {rule_text(spec) for spec in chosen} - {bench.plain, bench.bounded}
        bare = [Candidate(rule, bench.today.protect, bench.today.rounds) for rule in sorted(others)]
        met = [c for c in bare if self._look(bench.name(c, WATCHING)) is not None]
        best = sorted(met, key=lambda c: (search.leakage(c), c.rule))[:1]
        return [bench.bounded, *(c.rule for c in best)]

    def _look(self, name: str) -> Found | None:
        """What a run tells, with references once its candidate has been held against them; None if it is not there."""
        summary = self._outcome.summaries.get(name)
        if name not in self._known and summary is not None:
            try:
                helped, _ = self._helped(name) or ({}, None)
            except InputError as error:
                # It cannot be read any more: then it is a run that failed.
                del self._outcome.summaries[name]
                self._outcome.failures[name] = Failure(name, parse(self._store.spec(name)), str(error))
                return None
            self._known[name] = found_in({**summary, **helped}, self._store.rounds(name), self._store.spec(name))
        return self._known.get(name)

    def _failed(self) -> Iterable[str]:
        for failure in self._outcome.failures.values():
            if failure.spec.federation.protect:
                yield f"{failure.name[:12]}: {failure.reason}"

    def _option(self, candidate: Candidate, among: Sequence[int] | None = None) -> Option | None:
        """What is known of a candidate, over the seeds (`among` these) that it has all runs of.

        Today's setting must have been watched with them too: what a setting costs is told seed by seed.
        """
        bench, search = self._bench, self._search
        met = [a for a in bench.attacks(candidate) if self._look(bench.name(candidate, a)) is not None]
        needed = dict.fromkeys([(bench.today, WATCHING), *((candidate, a) for a in met)])
        asked = bench.seeds if among is None else among
        seeds = [s for s in asked if all(self._look(bench.name(c, a, s)) is not None for c, a in needed)]
        if WATCHING not in met or not seeds:
            return None
        found = {a: [f for s in seeds if (f := self._look(bench.name(candidate, a, s)))] for a in met}
        leakage = {a: over_seeds([f.auc for f in of]) for a, of in found.items()}
        tests = {a: _mean([f.test_accuracy for f in of]) for a, of in found.items()}
        worst = max(met, key=lambda a: leakage[a].value)
        today = [f for s in seeds if (f := self._look(bench.name(bench.today, WATCHING, s)))]
        epsilons = [f.epsilon for of in found.values() for f in of if f.epsilon is not None]
        return Option(
            rule=json.loads(candidate.rule),
            protect=tuple(json.loads(candidate.protect)),
            server=candidate.steps,
            rounds=candidate.rounds,
            leakage=leakage[worst],
            attack=worst,
            watching=leakage[WATCHING],
            test_accuracy=tests[WATCHING],
            under_attack=min(tests.values()),
            cost=_mean([f.test_accuracy for f in today]) - tests[WATCHING],
            attacks=tuple(met),
            complete=search.complete(candidate),
            runs=tuple(bench.name(candidate, a, s) for s in seeds for a in met),
            seeds=len(seeds),
            references=min(len(self._helpers.get(bench.name(candidate, a, s), ())) for s in seeds for a in met),
            unfit=tuple(a for a, of in found.items() if any(f.unfit for f in of)),
            epsilon=max(epsilons, default=None),
            stops=tuple(Stop(r, s.auc, s.test) for r, s in sorted(search.stops(candidate).items())),
        )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
