"""The search for a plan: which rule, which protections, how many rounds, within a budget of test accuracy.

Successive halving, the cheapest questions first. Every protection is watched (what does it cost, what does the model
give away to anyone?); the better half of each rule, trained for as many rounds as serve it best, meets the attack that
is strongest on the rule, and a blunt one; the best of each rule meets all attacks, and more of them as long as the best
has not met them all. A decision is made from the figures of finished runs alone, so that the same audit, stopped and
started however often, decides alike and computes nothing twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from scapegoat.auditing.candidates import BLUNT, Bench, Candidate
from scapegoat.auditing.elimination import WATCHING
from scapegoat.auditing.run_figures import Found
from scapegoat.experiments import Spec
from scapegoat.protections import registry as protections

MOST_COMPLETED = 6
"""More are not given all attacks, even if the next might leak a little less."""
MOST_HELD = 3
"""So many beside today's setting are held against reference federations at most, and each once or twice trained less;
one of these is chosen."""
LEAST_TRAINING = 0.25
"""Of its rounds, what a setting is trained for at least when the budget is spent on training it less."""
SPENT = 2 / 3
"""Of the budget, what training less may spend: the rest is for other seeds, whose models are not as good."""
CLOSE = 0.01
"""What might leak less by no more than this, if no attack finds out more, is not worth all attacks."""
GAIN = 0.02
"""What stopping early must gain in AUC, and a plan on today's setting: less may be chance."""
SIMPLER = 0.005
"""What protections by the server, or another rule than plain averaging, must gain in AUC to be worth their trouble;
each that asks something of every client, twice that."""
TRADE = 0.5
"""What a share of test accuracy counts in AUC within the budget: of settings that leak alike, the better model."""
RUINED = 1.0
"""What a share of test accuracy counts that an attack takes beyond twice the budget."""


class Stopped(NamedTuple):
    """A setting after a round: AUC of its strongest attack, test accuracy without an attack, the least under one."""

    auc: float
    test: float
    attacked: float


Look = Callable[[str], Found | None]
"""The figures of a run by its name; None if it has not finished."""
Go = Callable[[Iterable[Spec]], None]
"""Computes runs; those that are there already cost nothing."""
Hold = Callable[[Candidate], None]
"""Trains the reference federations of a candidate: its figures are by the strongest score with them from then on."""


class Search:
    """One search. `bench` makes the runs of candidates, `look` tells what is known of one, `go` computes some."""

    def __init__(self, bench: Bench, look: Look, go: Go, budget: float, hold: Hold | None = None) -> None:
        self._bench, self._look, self._go, self._budget, self._hold = bench, look, go, budget, hold
        self.met: dict[Candidate, None] = {}
        """Every candidate of which anything was computed, in the order of the search."""

    def opening(self) -> list[Spec]:
        """What is computed in any case: today's setting and every protection under averaging, watched."""
        bench = self._bench
        return [bench.spec(c, WATCHING) for c in (bench.today, *bench.of_rule(bench.bounded))]

    def watched(self, rules: Iterable[str]) -> list[Spec]:
        """What the search begins with: every protection of these rules, watched."""
        return [self._bench.spec(c, WATCHING) for rule in rules for c in self._bench.of_rule(rule)]

    def run(self, rules: Sequence[str]) -> Candidate:
        """Search among these rules, of which the matrix has the runs without protections; the recommended candidate."""
        bench, today = self._bench, self._bench.today
        pool: list[Candidate] = []
        offered = {rule: bench.of_rule(rule) for rule in rules}
        self._go(self.watched(rules))
        self._go(bench.spec(c, WATCHING) for rule in rules for c in self._instead(rule, offered[rule]))
        second = []
        for rule, tried in offered.items():
            bare = today if rule == bench.bounded else replace(today, rule=rule)
            ranked = sorted(self._known(tried), key=self._rank)
            kept = ranked[: math.ceil(len(ranked) / 2)]
            if self._hold is not None:
                # Margins do not tell what references will: of every kind of protection the best stays.
                kept = [c for c in ranked if c in kept or c == next(r for r in ranked if r.kind == c.kind)]
            # Attacked for the rounds that watching recommends: longer would cost more and say less.
            shortened = [c.stopped(self.stop(c)) for c in kept]
            asked = (WATCHING, self.strongest(bare), BLUNT)
            second += [bench.spec(c, a) for c in shortened for a in bench.attacks(c) if a in asked]
            pool += [bare, *shortened]
            self.met |= dict.fromkeys([bare, *tried, *shortened])
        self._go(second)
        entries = {c: self._entry(c) for c in self._known(pool)}
        self.met |= dict.fromkeys(entries.values())
        best = self._best(self._complete(entries), entries)
        # What is not clearly better than today's setting is not worth a change.
        return best if best != today and self.leakage(best) < self.leakage(today) - GAIN else today

    def _instead(self, rule: str, offered: list[Candidate]) -> list[Candidate]:
        """What a rule is offered as well if no other way to step is affordable; it is added to `offered`."""
        stepping = [c for c in self._known(offered) if c.steps and not self._rank(c)[0]]
        more = [] if stepping else self._bench.instead(rule)
        offered += more
        return more

    def _entry(self, candidate: Candidate) -> Candidate:
        """The candidate at its best round; what averages, and is not today's setting, bounds the updates."""
        stopped = candidate.stopped(self.stop(candidate))
        plain = stopped.rule == self._bench.plain and stopped != self._bench.today
        return replace(stopped, rule=self._bench.bounded) if plain else stopped

    def _complete(self, entries: Mapping[Candidate, Candidate]) -> list[Candidate]:
        """Give all attacks to the best, as known so far, until the best has met them all; those that have.

        One of which a run failed has not: who knows what that attack would have found.
        """
        given: list[Candidate] = [self._bench.today]
        while True:
            completed = [c for c in given if c == self._bench.today or self.complete(c)]
            ranked = sorted(entries.values(), key=lambda c: self._rank_stopped(c, entries))
            waiting = [c for c in ranked if c not in given]
            best = min(completed, key=lambda c: self._rank_stopped(c, entries))
            if not waiting or len(given) > MOST_COMPLETED:
                return completed
            unaffordable, leaks, _ = self._rank_stopped(waiting[0], entries)
            if self._rank_stopped(best, entries) <= (unaffordable, leaks + CLOSE):
                return completed
            self._go(self._bench.specs(waiting[0]))
            given.append(waiting[0])

    def _best(self, completed: Sequence[Candidate], entries: Mapping[Candidate, Candidate]) -> Candidate:
        """The best of those that have met all attacks; of those that were held against references, if any can be.

        References find more, hardly ever less: once the best has been held and still is, none of the others is better.
        What they see through in one setting they do in its like, so the next to be held is of another kind, if one of
        those might be better than what has been held; it meets all attacks first. Where they find more than the scores
        of one run, what is left of the budget is spent on training less.
        """

        def rank(candidate: Candidate) -> tuple[bool, float, float]:
            return self._rank_stopped(candidate, entries)

        if self._hold is None:
            return min(completed, key=rank)
        met, held, kinds = list(completed), [self._bench.today], set[frozenset[str]]()
        broken: list[Candidate] = []
        trained_less: list[Candidate] = []
        self._hold(self._bench.today)
        while len(held) - len(trained_less) <= MOST_HELD:
            bar = min(map(rank, held))
            others = [c for c in entries.values() if c.kind not in kinds] if kinds else []
            better = [c for c in dict.fromkeys([*met, *others]) if c not in [*held, *broken] and rank(c) < bar]
            if not better:
                break
            found = min([c for c in better if c.kind not in kinds] or better, key=rank)
            kinds.add(found.kind)
            if found not in met:
                self._go(self._bench.specs(found))
                met.append(found)
            if not self.complete(found):
                broken.append(found)
            elif rank(found) < bar:
                alone = self.leakage(found)
                self._hold(found)
                held.append(found)
                for less in self._trained_less(found) if self.leakage(found) > alone + GAIN else ():
                    self._hold(less)
                    trained_less.append(less)
                    held.append(less)
        return min(held, key=rank)

    def _trained_less(self, candidate: Candidate) -> list[Candidate]:
        """The same, trained for about as few rounds as the budget allows, and attacked; empty if for no fewer.

        References see what a longer training leaves long after margins have stopped, so margins cannot say where to
        stop; the test accuracy of watched runs does, three numbers of rounds at a time for both cores to have work.
        An attack can do more to a model that had less time: where one does too much, half of the rounds are given back.
        """
        few, enough = math.ceil(LEAST_TRAINING * candidate.rounds), candidate.rounds
        for _ in range(2):
            tried = [candidate.trained(few + k * (enough - few) // 4) for k in (1, 2, 3)]
            self._go(self._bench.spec(c, WATCHING) for c in tried)
            self.met |= dict.fromkeys(self._known(tried))
            affordable = [c.rounds for c in self._known(tried) if self._cost(self._test(c)) <= SPENT * self._budget]
            enough = min(affordable, default=enough)
            few = max((c.rounds for c in tried if c.rounds < enough), default=few)
        if enough == candidate.rounds:
            return []
        less = [candidate.trained(enough)]
        self._go(self._bench.specs(less[0]))
        if self._as_it_is(less[0]).attacked < self._expected_under_attack():
            less.append(candidate.trained((enough + candidate.rounds) // 2))
            self._go(self._bench.specs(less[1]))
            self.met[less[1]] = None
        return [c for c in less if self.complete(c)]

    def confirms(self, today: float, leakage: float, cost: float) -> bool:
        """Whether a setting that leaks and costs this would be recommended where today's leaks so much."""
        return cost <= self._budget + 1e-9 and leakage < today - GAIN

    def leakage(self, candidate: Candidate) -> float:
        """The largest AUC of the attacks that it has met so far; 1 if it has met none."""
        found = [f.auc.value for a in self._bench.attacks(candidate) if (f := self._of(candidate, a)) is not None]
        return max(found, default=1.0)

    def complete(self, candidate: Candidate) -> bool:
        """Whether every attack has been tried on it."""
        return all(self._of(candidate, a) is not None for a in self._bench.attacks(candidate))

    def strongest(self, bare: Candidate) -> str:
        """The attack that finds out most under a rule without protections, beside watching."""
        tried = [a for a in self._bench.attacks(bare) if a != WATCHING and self._of(bare, a) is not None]
        return max(tried, key=lambda a: self._auc(bare, a), default=WATCHING)

    def stops(self, candidate: Candidate) -> dict[int, Stopped]:
        """By round: what it would be had it been stopped there, as far as its attacks have been tried."""
        watched = self._of(candidate, WATCHING)
        if watched is None:
            return {}
        others = [f for a in self._bench.attacks(candidate) if (f := self._of(candidate, a)) is not None]
        return {
            r: Stopped(
                max(f.by_round[r][0] for f in others if r in f.by_round),
                test,
                min(f.by_round[r][1] for f in others if r in f.by_round),
            )
            for r, (_, test) in watched.by_round.items()
        }

    def stop(self, candidate: Candidate) -> int:
        """The round after which it leaks least within the budget; all of them unless that gains `GAIN`."""
        stops = _without_spikes(self.stops(candidate))
        within = {r: stop.auc for r, stop in stops.items() if self._affordable(stop)}
        if not within or (candidate.rounds in within and min(within.values()) > within[candidate.rounds] - GAIN):
            return candidate.rounds
        return min(within, key=lambda r: (within[r] + TRADE * self._cost(stops[r].test), -r))

    def _rank(self, candidate: Candidate) -> tuple[bool, float, float]:
        """Within the budget first, then by the least that it leaks there, as far as it is known, and what it costs."""
        return self._placed(candidate, self.stops(candidate).get(self.stop(candidate), self._as_it_is(candidate)))

    def _as_it_is(self, candidate: Candidate) -> Stopped:
        """Trained to its end, by the strongest score."""
        met = [f for a in self._bench.attacks(candidate) if (f := self._of(candidate, a)) is not None]
        attacked = min((f.test_accuracy for f in met), default=0.0)
        return Stopped(self.leakage(candidate), self._test(candidate), attacked)

    def _affordable(self, stop: Stopped) -> bool:
        """Within the budget while nobody attacks, and under attack within twice that, or no worse than today's."""
        floor = min(self._as_it_is(self._bench.today).attacked, self._expected_under_attack())
        return self._cost(stop.test) <= self._budget + 1e-9 and stop.attacked >= floor - 1e-9

    def _expected_under_attack(self) -> float:
        """The test accuracy that no attack should bring a plan below."""
        return self._test(self._bench.today) - 2 * self._budget

    def _placed(self, candidate: Candidate, stop: Stopped) -> tuple[bool, float, float]:
        cost = self._cost(stop.test)
        acting = [protections.cls(p["name"]).acts for p in json.loads(candidate.protect)]
        trouble = 2 * acting.count("client") + ("server" in acting) + (candidate.rule != self._bench.plain)
        ruined = max(0.0, self._expected_under_attack() - stop.attacked)
        leaks = stop.auc + TRADE * cost + SIMPLER * trouble + RUINED * ruined
        watched = self._of(candidate, WATCHING)
        useless = watched is None or bool(watched.doubt)
        return useless or not self._affordable(stop), leaks, cost

    def _rank_stopped(self, candidate: Candidate, entries: Mapping[Candidate, Candidate]) -> tuple[bool, float, float]:
        """The same for a candidate stopped early: by its own runs where it has any, else by the longer one's rounds."""
        if self._of(candidate, WATCHING) is not None:
            return self._placed(candidate, self._as_it_is(candidate))
        return self._rank(next(c for c, stopped in entries.items() if stopped == candidate))

    def _known(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        return [c for c in candidates if self._of(c, WATCHING) is not None]

    def _of(self, candidate: Candidate, attack: str) -> Found | None:
        return self._look(self._bench.name(candidate, attack))

    def _auc(self, candidate: Candidate, attack: str) -> float:
        found = self._of(candidate, attack)
        return 0.0 if found is None else found.auc.value

    def _test(self, candidate: Candidate) -> float:
        found = self._of(candidate, WATCHING)
        return 0.0 if found is None else found.test_accuracy

    def _cost(self, test: float) -> float:
        return self._test(self._bench.today) - test


def _without_spikes(stops: Mapping[int, Stopped]) -> dict[int, Stopped]:
    """The same with each test accuracy as the median of its neighbours' and its own: one lucky round is no plan."""
    rounds = sorted(stops)
    found = dict(stops)
    for before, r, after in zip(rounds, rounds[1:], rounds[2:], strict=False):
        tests = sorted(stops[x].test for x in (before, r, after))
        found[r] = stops[r]._replace(test=tests[1])
    return found
