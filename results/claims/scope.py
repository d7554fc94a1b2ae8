"""What the paper's claims are about: its rules as it sets them, its attacks, and the federations of its sweeps.

Data sets and rounds are left out: the paper's own are out of reach here, and its claims are not about them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from scapegoat import aggregation, attacks
from scapegoat.errors import InputError
from scapegoat.federation import FederationSetting
from scapegoat.sweeping import paper
from scapegoat.sweeping.fitting import fitted_defense

RULES = (*paper.MAIN_DEFENSES, "fang", "multi_krum", "deepsight")
ATTACKS = ("passive", "gradient_ascent", "agrevader", "adaptive", "fedpoisonmia")
# Clients and malicious clients: one of ten, the figures that vary either number, partial knowledge.
FEDERATIONS = {*((n, 1) for n in (8, 10, 15, 20, 30)), *((10, m) for m in range(1, 6)), (50, 10)}
BIASES = (0.1, 0.3, 0.5, 0.7, 0.9)
TARGETS = (100, 200, 300, 400, 500)
# Options of an attack that the paper itself varies.
VARIED = ("knowledge", "targets", "selection")


def in_the_paper(spec: Mapping[str, Any]) -> bool:
    """Whether the paper has this setting, or could have printed this run in one of its tables and figures."""
    federation, attack, rule = spec["federation"], spec["attack"], spec["defense"]
    partition, server = federation["partition"], federation["server"]
    return (
        isinstance(rule, Mapping)
        and rule["name"] in RULES
        and not unusual_options(rule, federation)
        and attack["name"] in ATTACKS
        and not (_differing(attack, attacks.get(attack["name"]).canonical()).keys() - set(VARIED))
        and attack["targets"] in TARGETS
        and (federation["clients"], federation["malicious"]) in FEDERATIONS
        and federation["fraction"] in (0.8, 1.0)
        and federation["batch_size"] == paper.SETTING["federation.batch_size"]
        and federation["local"]["name"] == "gradient"
        and {key: server[key] for key in ("optimizer", "lr")} == paper.SETTING["federation.server"]
        and (partition["name"] == "iid" or (partition["name"] == "label_bias" and partition["beta"] in BIASES))
    )


def unusual_options(rule: Mapping[str, Any], federation: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a rule that are not what a sweep would have set for this federation."""
    return _differing(rule, _usual(rule["name"], json.dumps(federation, sort_keys=True)))


@cache
def _usual(rule: str, federation: str) -> Mapping[str, Any]:
    try:
        setting = FederationSetting(**json.loads(federation))
        return dict(aggregation.parse(fitted_defense(paper.defense(rule), setting)).canonical())
    except InputError:  # a rule of somebody's own, not installed here: every option is worth a word
        return {"name": rule}


def _differing(stated: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in stated.items() if value != usual.get(key)}
