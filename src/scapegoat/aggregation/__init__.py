"""Aggregation rules: one file per rule, each a pure function of the updates and a class that carries its options.

get("atm", trim=1)(updates)      the rule by name
atm(updates, trim=1)             the function behind it; it has the same name as its file
parse([{"name": "norm_clipping"}, {"name": "atm"}])
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scapegoat.combining.contract import Aggregate, AggregationContext, Score
from scapegoat.combining.described import describe
from scapegoat.combining.pipeline import Pipeline, RuleLike, parse
from scapegoat.combining.rule import Rule, Transform, Trim, get, register, registry, trim_count
from scapegoat.combining.stack import Stack

if TYPE_CHECKING:
    from scapegoat.aggregation.arc import arc as arc
    from scapegoat.aggregation.atm import atm as atm
    from scapegoat.aggregation.bucketing import bucketing as bucketing
    from scapegoat.aggregation.bulyan import bulyan as bulyan
    from scapegoat.aggregation.centered_clipping import centered_clipping as centered_clipping
    from scapegoat.aggregation.client_momentum import client_momentum as client_momentum
    from scapegoat.aggregation.clipped_atm import clipped_atm as clipped_atm
    from scapegoat.aggregation.deepsight import deepsight as deepsight
    from scapegoat.aggregation.dnc import dnc as dnc
    from scapegoat.aggregation.dp import dp as dp
    from scapegoat.aggregation.fang import fang as fang
    from scapegoat.aggregation.fedavg import fedavg as fedavg
    from scapegoat.aggregation.flame import flame as flame
    from scapegoat.aggregation.fldetector import fldetector as fldetector
    from scapegoat.aggregation.fltrust import fltrust as fltrust
    from scapegoat.aggregation.foolsgold import foolsgold as foolsgold
    from scapegoat.aggregation.geometric_median import geometric_median as geometric_median
    from scapegoat.aggregation.krum import krum as krum
    from scapegoat.aggregation.mda import mda as mda
    from scapegoat.aggregation.meamed import meamed as meamed
    from scapegoat.aggregation.median import median as median
    from scapegoat.aggregation.memory_atm import memory_atm as memory_atm
    from scapegoat.aggregation.multi_krum import multi_krum as multi_krum
    from scapegoat.aggregation.nearest_neighbour_mixing import nearest_neighbour_mixing as nearest_neighbour_mixing
    from scapegoat.aggregation.norm_clipping import norm_clipping as norm_clipping
    from scapegoat.aggregation.reputation_atm import reputation_atm as reputation_atm
    from scapegoat.aggregation.signguard import signguard as signguard
    from scapegoat.aggregation.top_k import top_k as top_k
    from scapegoat.aggregation.trimmed_mean import trimmed_mean as trimmed_mean

# Importing a rule's file binds its module here; from then on its name means the function, for every rule there is.
for _name, _rule in registry.classes():
    _function = getattr(sys.modules.get(f"{__name__}.{_name}"), _name, None)
    if _function is not None:
        describe(_function, _rule)
        globals()[_name] = _function

__all__ = [
    "Aggregate",
    "AggregationContext",
    "Pipeline",
    "Rule",
    "RuleLike",
    "Score",
    "Stack",
    "Transform",
    "Trim",
    "get",
    "parse",
    "register",
    "registry",
    "trim_count",
]
