"""Each of the paper's claims, held against the runs of the result files."""

from __future__ import annotations

from results.claims import attacks, costs, defenses, trends
from results.claims.evidence import Finding, runs_of
from results.files import Collection

__all__ = ["Finding", "findings"]


def findings(collection: Collection) -> list[Finding]:
    """Every claim with its verdict, in the order in which the paper makes them."""
    runs = runs_of(collection)
    return [
        attacks.strongest(runs),
        attacks.greedy_over_random(runs),
        attacks.iid_leaks_more(runs),
        defenses.atm_best(runs),
        defenses.atm_withstands_adaptive(runs),
        defenses.atm_keeps_test_accuracy(runs),
        defenses.participation_changes_little(runs),
        *trends.all_trends(runs),
        attacks.partial_within_eight(runs),
        costs.atm_is_cheap(collection.costs),
        costs.attack_is_practical(collection.costs),
        defenses.beyond_the_paper(runs),
    ]
