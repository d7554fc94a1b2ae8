"""The verdict's sentences: what was found, said so that it claims no more than the intervals allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scapegoat.report.measures import ATTACK_NAMES, BY_KEY, number, written
from scapegoat.report.model import Estimate, Judgement, Status, Verdict

_NUMERALS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_SHORT = {"accuracy_best": "accuracy", "auc": "AUC", "tpr_at_fpr_01": "TPR at 1% FPR"}
FEW_TARGETS = 200


@dataclass(frozen=True)
class Findings:
    """What the criterion found; see `scapegoat.report.verdict`.

    `choice` is the rule that the verdict is about. `undefended` holds the worst active attack under plain averaging, by
    measure; `alike` the rules that cannot be told apart from the choice; `utility` the test accuracy with nobody
    attacking, under plain averaging and under the choice. `fooled`: accuracy alone would have called the choice closed.
    """

    judgements: tuple[Judgement, ...]
    baseline: Mapping[str, Estimate]
    choice: Judgement | None
    recommended: str | None
    status: Status
    plain: str | None
    undefended: Mapping[str, tuple[str, Estimate]]
    active: bool
    alike: tuple[str, ...]
    fooled: bool
    utility: tuple[float, float] | None
    clients: int | None
    malicious: int | None
    seeds: int
    targets: int
    tolerance: float
    max_cost: float


def compose(found: Findings) -> Verdict:
    """Findings as a verdict."""
    sentences = [
        _without_defense(found),
        _watching(found),
        _with_choice(found),
        _cost(found),
        _hidden(found),
        _others(found),
        _memorised(found),
    ]
    return Verdict(
        headline=_headline(found),
        sentences=tuple(s for s in sentences if s),
        recommended=found.recommended,
        status=found.status,
        least=found.choice.defense if found.choice is not None else None,
        baseline=dict(found.baseline),
        judgements=found.judgements,
        caveats=_caveats(found),
    )


def _headline(found: Findings) -> str:
    choice = found.choice
    if choice is None:
        if not found.judgements:
            return "There is no finished run to judge."
        return "Only watching was tried: no verdict on any rule." if not found.active else "Too few runs for a verdict."
    name = rule(choice.defense)
    if choice.too_costly and choice.cost is not None:
        return f"No rule tried is both tight and affordable: {name}, the tightest, costs {points(choice.cost)}."
    if found.recommended is not None and choice.defense == found.plain:
        return f"{name} is enough here: no attack tried gains more than {number(found.tolerance)} on merely watching."
    if found.status == "closed":
        return f"Use {name}: no attack tried gains more than {number(found.tolerance)} on merely watching."
    if found.recommended is not None:
        return f"{name} is the best rule tried, but it is not shown to be enough."
    if found.status == "open":
        alone = len(found.judgements) == 1
        return f"{name} is not enough here." if alone else f"No rule tried is good enough; {name} leaks least."
    return "These runs do not settle which rule to use."


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
    choice = found.choice
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
        return f"that is {than}" + (f" (at most {number(high)} more)" if high is not None else "")
    if choice.status == "open":
        still = "that is" if choice.defense == found.plain else "still"
        return f"{still} more than {than} ({_leaks(choice)})"
    more = f", but up to {number(high)} more is not ruled out" if high is not None else ""
    return f"more than {than} is not shown{more}"


def _cost(found: Findings) -> str:
    choice = found.choice
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
    if not found.fooled or found.choice is None:
        return ""
    text = "By yes/no accuracy alone it would look closed; "
    shown = [name for key, name in _SHORT.items() if any(m == key for _, m in found.choice.leaking)]
    if not shown:
        return f"{text}the scores do not rule out more."
    return f"{text}{listed(shown)} {'shows' if len(shown) == 1 else 'show'} that it is not."


def _others(found: Findings) -> str:
    if found.choice is None or not found.alike or found.choice.defense == found.plain:
        return ""
    names = listed([rule(n) for n in found.alike])
    return f"{names} cannot be told apart from {rule(found.choice.defense)} with these runs."


def _memorised(found: Findings) -> str:
    accuracy, auc = found.baseline.get("accuracy_best"), found.baseline.get("auc")
    # Best-round accuracy is above one half by selection alone; the AUC of the final model is not.
    if accuracy is None or auc is None or auc.low is None:
        return ""
    if auc.low <= 0.5:
        return (
            "Watching is not shown to beat guessing: the model has memorised little or nothing yet. Train it as long "
            "as in earnest before you rely on this."
        )
    return (
        "Watching alone already beats guessing, and no aggregation rule can undo that: it is what the model memorised. "
        "Shorter training, regularisation or differential privacy can."
    )


def _caveats(found: Findings) -> tuple[str, ...]:
    notes = []
    if found.seeds == 1:
        notes.append("One seed: the intervals cover the draw of the targets, not the luck of the training run.")
    elif found.seeds > 1:
        notes.append(f"Means and intervals over {found.seeds} seeds.")
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
    return "; ".join(f"{_SHORT.get(m, BY_KEY[m].label)}: {listed(attacks)}" for m, attacks in by_measure.items())


def rule(defense: str) -> str:
    """A rule as prose calls it: the name to type, but FedAvg as everybody writes it."""
    return "FedAvg" if defense == "fedavg" else defense


def attack_name(attack: str) -> str:
    """An attack as prose calls it."""
    name, _, options = attack.partition(" ")
    return f"{ATTACK_NAMES.get(name, name)} {options}".rstrip()


def hostile(malicious: int | None, clients: int | None) -> str:
    """How many clients are hostile, in words."""
    if malicious is None or clients is None:
        return "a hostile client"
    if malicious == 1:
        return f"a hostile client out of {numeral(clients)}"
    return f"{numeral(malicious)} hostile clients out of {numeral(clients)}"


def numeral(count: int) -> str:
    """Small numbers as words."""
    return _NUMERALS[count] if 0 <= count < len(_NUMERALS) else f"{count:,}"


def points(cost: Estimate) -> str:
    """A loss of test accuracy in percentage points."""
    count = round(cost.value * 100)
    return f"{count} point{'' if count == 1 else 's'} of test accuracy"


def percent(share: float) -> str:
    """A share as a whole percentage."""
    return f"{share * 100:.0f}%"


def listed(items: Sequence[str]) -> str:
    """Items as prose lists them."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
