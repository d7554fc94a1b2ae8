"""A gate's checks for machines: JUnit XML, which CI systems show as tests, and SARIF 2.1.0, which code hosts show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from scapegoat.auditing.gate import Gate
from scapegoat.files import whole
from scapegoat.terminal import printable

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
DEMANDS = {
    "runs": "Every attack has run against the deployed rule, with every seed.",
    "references": "Reference federations that were asked for fit the runs, so that scores by them were tried.",
    "valid": "Members and non-members cannot be told apart before training, so that figures speak of leakage.",
    "trained": "The model had learnt something: one that has not gives nothing away yet, and proves nothing.",
    "accounted": "No run shows a larger epsilon than it accounts for.",
    "auc": "AUC of the worst score: the chance that a member is ranked above a non-member.",
    "tpr_at_fpr_01": "Share of members found when one non-member in a hundred is accused.",
    "tpr_at_fpr_001": "Share of members found when one non-member in a thousand is accused.",
    "epsilon_lower": "The largest epsilon that the audit refutes with 95% confidence.",
    "accuracy_cost": "Test accuracy lost against plain averaging while nobody attacks.",
}


def write_junit(gate: Gate, path: str | Path) -> None:
    """Write the checks as JUnit XML: a test case per demand; what is not shown to hold is a failure."""
    suite = ElementTree.Element(
        "testsuite",
        name="scapegoat policy",
        tests=str(len(gate.checks)),
        failures=str(len(gate.failures)),
        errors="0",
        skipped="0",
    )
    for check in gate.checks:
        case = ElementTree.SubElement(
            suite, "testcase", classname="scapegoat.policy", name=printable(check.key), time="0"
        )
        if check.status != "held":
            failure = ElementTree.SubElement(case, "failure", type=check.status, message=printable(check.text))
            failure.text = f"{printable(gate.policy.source)}, line {check.line}"
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    with whole(Path(path)) as draft:
        draft.write_bytes(ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True) + b"\n")


def write_sarif(gate: Gate, path: str | Path) -> None:
    """Write the checks as SARIF 2.1.0: a rule per kind of demand, a result per check, at its line of the policy."""
    with whole(Path(path)) as draft:
        draft.write_text(json.dumps(sarif(gate), indent=2) + "\n", encoding="utf-8")


def sarif(gate: Gate) -> dict[str, Any]:
    """The checks as a SARIF 2.1.0 log."""
    from scapegoat import __version__

    rules = [{"id": name, "name": name, "shortDescription": {"text": text}} for name, text in DEMANDS.items()]
    order = list(DEMANDS)
    results = []
    for check in gate.checks:
        place = {
            "artifactLocation": {"uri": _uri(gate.policy.source)},
            "region": {"startLine": check.line},
        }
        results.append(
            {
                "ruleId": check.demand,
                "ruleIndex": order.index(check.demand),
                "kind": "pass" if check.status == "held" else "fail",
                "level": "none" if check.status == "held" else "error",
                "message": {"text": check.text},
                "locations": [{"physicalLocation": place}],
                "partialFingerprints": {"demand/v1": check.key},
            }
        )
    driver = {"name": "scapegoat", "version": __version__, "rules": rules}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _uri(source: str) -> str:
    path = Path(source)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
