"""The verdict's sentences: what was found, said so that it claims no more than the intervals allow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scapegoat.membership.metrics import Estimate
from scapegoat.report.choosing import MOST_SEEDS, Choice
from scapegoat.report.measures import METRICS, number, signed, written
from scapegoat.report.model import Answer, Judgement, Part, Verdict
from scapegoat.report.wording import attack_name, hostile, listed, percent, points, rule

FEW_TARGETS = 200


@dataclass(frozen=True)
class Findings:
    """What the criterion found; see `scapegoat.report.verdict`.

    `watching` is the first part. `doubts` are why figures are not to be believed, `undertrained` why the model counts
    as not trained. `undefended` holds the worst active attack under plain averaging, by
    measure; `alike` the rules that cannot be told apart from the choice; `utility` the test accuracy with nobody
    attacking, under plain averaging and under the choice. `fooled`: accuracy alone would have called the choice closed.
    `scores` is how many were tried. `grounds` say what all this rests on.
    """

    judgements: tuple[Judgement, ...]
    baseline: Mapping[str, Estimate]
    choice: Choice
    watching: Part | None
    doubts: tuple[str, ...]
    undertrained: str
    plain: str | None
    undefended: Mapping[str, tuple[str, Estimate]]
    active: bool
    alike: tuple[str, ...]
    fooled: bool
    utility: tuple[float, float] | None
    scores: int
    grounds: tuple[str, ...]
    clients: int | None
    malicious: int | None
    seeds: int
    of_one_seed: tuple[str, ...]
    targets: int
    tolerance: float
    max_cost: float

    @property
    def rule(self) -> Judgement | None:
        """The rule that the verdict is about."""
        return self.choice.rule

    @property
    def recommended(self) -> str | None:
        """The rule to use, if one is recommended."""
        return self.choice.recommended


_WORSE: dict[Answer, int] = {"closed": 0, "undecided": 1, "open": 2}


def compose(found: Findings) -> Verdict:
    """Findings as a verdict."""
    hostile = _hostile(found)
    parts = [part for part in (found.watching, hostile) if part is not None]
    status = max((part.status for part in parts), key=_WORSE.__getitem__)
    headline = " ".join(part.headline for part in parts)
    refused = True
    if found.doubts:
        status, headline = "invalid", f"No verdict: these figures do not speak of leakage. {_sentence(found.doubts[0])}"
    elif found.undertrained and not (found.watching is not None and found.watching.status == "open"):
        status = "undertrained"
        headline = f"Train longer first: this model has not learnt enough to be judged ({found.undertrained})."
    else:
        refused = False
    return Verdict(
        headline=headline,
        sentences=tuple(sentence for part in parts for sentence in part.sentences) + found.grounds,
        recommended=None if refused else found.recommended,
        status=status,
        least=found.rule.defense if found.rule is not None else None,
        watching=found.watching,
        hostile=hostile,
        seeds_needed=found.choice.seeds_needed,
        baseline=dict(found.baseline),
        judgements=found.judgements,
        caveats=_caveats(found),
    )


def _hostile(found: Findings) -> Part:
    """The second part: what a hostile participant adds, and what stops it."""
    sentences = [
        _without_defense(found),
        _watching(found),
        _with_choice(found),
        _decided(found),
        _cost(found),
        _hidden(found),
        _others(found),
        _memorised(found),
    ]
    rule, status = found.rule, found.choice.status
    return Part(
        "undecided" if status == "unjudged" else status,
        _headline(found),
        tuple(s for s in sentences if s),
        METRICS[rule.deciding[1]] if rule is not None and rule.deciding is not None else "",
        rule.decided if rule is not None else None,
    )


def _headline(found: Findings) -> str:
    choice = found.rule
    if choice is None:
        if not found.judgements:
            return "There is no finished run to judge."
        return "Only watching was tried: no verdict on any rule." if not found.active else "Too few runs for a verdict."
    name = rule(choice.defense)
    if choice.too_costly and choice.cost is not None:
        return f"No rule tried is both tight and affordable: {name}, the tightest, costs {points(choice.cost)}."
    gains = f"no attack tried gains more than {number(found.tolerance)} on merely watching"
    if found.recommended is not None and choice.defense == found.plain:
        if found.watching is not None and found.watching.status == "open":
            return f"A hostile participant adds little or nothing to that under {name}: {gains}."
        return f"{name} is enough here: {gains}."
    if found.recommended is not None:
        tied = listed([rule(n) for n in found.choice.tied]) if found.choice.tied else ""
        apart = f" {tied} cannot be told apart from it; it is the cheapest.{_seeds(found)}" if tied else ""
        if found.choice.status == "closed":
            return f"Use {name}: {gains}.{apart}"
        return f"{name} is the best rule tried, but it is not shown to be enough.{apart}"
    if found.choice.status == "open":
        alone = len(found.judgements) == 1
        return f"{name} is not enough here." if alone else f"No rule tried is good enough; {name} leaks least."
    return _unsettled(found, name)


def _seeds(found: Findings) -> str:
    """How many seeds would tell the rules apart."""
    needed = found.choice.seeds_needed
    if needed is None:
        return ""
    count = f"about {needed}" if needed <= MOST_SEEDS else f"more than {MOST_SEEDS}"
    # An audit gives some rules more seeds than others: "2 seeds" is no news where another rule has three.
    compared = [*([] if found.rule is None else [found.rule.defense]), *found.choice.tied]
    alone = [rule(name) for name in compared if found.seeds > 1 and name in found.of_one_seed]
    few = f" ({listed(alone)} {'has' if len(alone) == 1 else 'have'} one)" if alone else ""
    return f" By their spread, {count} seeds{' of each' if few else ''} would settle it{few}."


def _unsettled(found: Findings, name: str) -> str:
    seeds = _seeds(found)
    if found.choice.tied:
        names = listed([name, *(rule(n) for n in found.choice.tied)])
        return f"These runs cannot tell {names} apart: no rule is recommended, and {name} is the cheapest.{seeds}"
    return f"These runs do not settle which rule to use.{seeds}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _decided(found: Findings) -> str:
    rule = found.rule
    if rule is None or rule.deciding is None or rule.decided is None:
        return ""
    attack, measure = rule.deciding
    against = "watching" if found.baseline else "guessing"
    return f"Decided by {METRICS[measure]} ({attack_name(attack)}): {signed(rule.decided)} beside {against}."


def _without_defense(found: Findings) -> str:
    if found.plain is None or "accuracy_best" not in found.undefended:
        return ""
    attack, accuracy = found.undefended["accuracy_best"]
    verb = "recognises" if (found.malicious or 1) == 1 else "recognise"
    text = f"With {rule(found.plain)} {hostile(found.malicious, found.clients)} {verb} members with accuracy "
    text += f"{written(accuracy)} ({attack_name(attack)}, best round)"
    return text + _scores(found.undefended, attack) + "."


def _watching(found: Findings) -> str:
    if "accuracy_best" not in found.baseline:
        return (
            ""
            if not found.active
            else "There is no run of merely watching under FedAvg: figures are held against guessing."
        )
    base = found.baseline
    text = f"An honest-but-curious client that merely watches gets {written(base['accuracy_best'])}"
    text += f", AUC {written(base['auc'])}"
    if "tpr_at_fpr_01" in base:
        text += f", and {percent(base['tpr_at_fpr_01'].value)} of the members at 1% false alarms"
    return text + "."


def _with_choice(found: Findings) -> str:
    choice = found.rule
    if choice is None or choice.excess is None or "accuracy_best" not in choice.worst:
        return ""
    if choice.defense == found.plain:
        if choice.status == "closed":
            return f"Its worst attack stays within {number(found.tolerance)} of watching, whichever figure is taken."
        standing = _standing(found, choice)
        return f"{standing[0].upper()}{standing[1:]}."
    attack, accuracy = choice.worst["accuracy_best"]
    name = rule(choice.defense)
    reached = f"{written(accuracy)} ({attack_name(attack)})"
    if found.recommended is None and len(found.judgements) > 1:
        text = f"{name} leaks least of the rules tried: {reached}"
    elif found.undefended and found.recommended is not None:
        text = f"{name} brings the worst attack to {reached}"
    else:
        text = f"With {name} the worst attack reaches {reached}"
    return f"{text}{_scores(choice.worst, attack)}; {_standing(found, choice)}."


def _standing(found: Findings, choice: Judgement) -> str:
    """How the rule's worst attack stands to merely watching."""
    than = "what watching already gives" if found.baseline else "guessing"
    high = choice.ceiling
    if choice.status == "closed":
        return f"that is {than}" + (
            f" (at most {number(high)} more)" if high is not None and math.isfinite(high) else ""
        )
    if choice.status == "open":
        still = "that is" if choice.defense == found.plain else "still"
        return f"{still} more than {than} ({_leaks(choice)})"
    more = f", but up to {number(high)} more is not ruled out" if high is not None and math.isfinite(high) else ""
    return f"more than {than} is not shown{more}"


def _cost(found: Findings) -> str:
    choice = found.rule
    if choice is None or choice.defense == found.plain:
        return ""
    parts = []
    if choice.cost is not None and found.utility is not None:
        change = f"{number(found.utility[0])} to {number(found.utility[1])} with nobody attacking"
        if choice.cost.value >= 0.005:
            parts.append(f"cost: {points(choice.cost)} ({change})")
        else:
            parts.append(f"it costs no test accuracy ({change})")
        if choice.too_costly:
            parts[-1] += f", above the limit of {round(found.max_cost * 100)}"
    elif found.plain is not None:
        parts.append("its cost in test accuracy is not known: watching was not run with both rules")
    if choice.under_attack is not None:
        parts.append(f"under attack, test accuracy is never below {number(choice.under_attack)}")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:] + "." if text else ""


def _hidden(found: Findings) -> str:
    if not found.fooled or found.rule is None:
        return ""
    text = "By yes/no accuracy alone it would look closed; "
    shown = [name for key, name in METRICS.items() if any(m == key for _, m in found.rule.leaking)]
    if not shown:
        return f"{text}the scores do not rule out more."
    return f"{text}{listed(shown)} {'shows' if len(shown) == 1 else 'show'} that it is not."


def _others(found: Findings) -> str:
    if found.rule is None or not found.alike or found.rule.defense == found.plain:
        return ""
    named = [rule(n) for n in found.alike if n not in found.choice.tied]
    if not named:
        return ""
    names = listed(named)
    return f"{names} cannot be told apart from {rule(found.rule.defense)} with these runs."


def _memorised(found: Findings) -> str:
    accuracy, auc = found.baseline.get("accuracy_best"), found.baseline.get("auc")
    # Best-round accuracy is above one half by selection alone; the AUC of the final model is not.
    if accuracy is None or auc is None or not auc.bounded:
        return ""
    if found.watching is not None and found.watching.status == "open":
        return ""
    if auc.low > 0.5:
        return ""
    return (
        "Watching is not shown to beat guessing: the model has memorised little or nothing yet. Train it as long as in "
        "earnest before you rely on this."
    )


def _caveats(found: Findings) -> tuple[str, ...]:
    notes = []
    if found.seeds == 1:
        notes.append("One seed: the intervals cover the draw of the targets, not the luck of the training run.")
    elif found.seeds > 1:
        notes.append(f"Means and intervals over {found.seeds} seeds.")
        if found.of_one_seed:
            notes.append(
                f"Of {listed([rule(name) for name in found.of_one_seed])} some runs have one seed: their intervals "
                "cover the draw of the targets, not the luck of the training run."
            )
    judged = sum(j.status != "unjudged" for j in found.judgements)
    if found.rule is not None and found.rule.defense != found.plain and judged > 1:
        # Plain averaging is not picked for leaking little. Measured for four rules: results/staged_seeds.py.
        alone = found.seeds == 1 or found.rule.defense in found.of_one_seed
        flattered = "two points of AUC, which its interval does not allow for" if alone else "a point of AUC"
        notes.append(
            f"{rule(found.rule.defense)} was picked by the runs that it is judged by: if the rules leak alike, that "
            f"flatters it by about {flattered}."
        )
    if found.scores > 1:
        notes.append(
            f"AUC and TPR above are those of the score that tells most, of up to {found.scores} tried in a cell; the "
            "table of attacks by defenses has those of the final margin, as in the paper."
        )
    if 0 < found.targets < FEW_TARGETS:
        notes.append(f"Only {found.targets} targets: the intervals are wide.")
    notes += [
        f"{rule(j.defense)} is not judged: {j.reason}." for j in found.judgements if j.status == "unjudged" and j.reason
    ]
    return tuple(notes)


def _scores(worst: Mapping[str, tuple[str, Estimate]], attack: str) -> str:
    """The score-based figures, each with its attack where that is another one."""
    text = ""
    if "auc" in worst:
        other, auc = worst["auc"]
        text += f", AUC {written(auc)}" + (f" ({attack_name(other)})" if other != attack else "")
    if "tpr_at_fpr_01" in worst:
        other, rate = worst["tpr_at_fpr_01"]
        text += f", {percent(rate.value)} of the members at 1% false alarms"
        text += f" ({attack_name(other)})" if other != attack else ""
    return text


def _leaks(judgement: Judgement) -> str:
    """What is demonstrably above the baseline: attacks by measure."""
    by_measure: dict[str, list[str]] = {}
    for attack, measure in judgement.leaking:
        by_measure.setdefault(measure, []).append(attack_name(attack))
    return "; ".join(f"{METRICS[m]}: {listed(attacks)}" for m, attacks in by_measure.items())
