"""Sweeps as data, and the runs that they come to."""

from scapegoat.experiments.plans.plan import Cell, Plan, parse_only, plan, saved, stored, write
from scapegoat.experiments.plans.sweep import AnySweep, CostSweep, Sweep

__all__ = ["AnySweep", "Cell", "CostSweep", "Plan", "Sweep", "parse_only", "plan", "saved", "stored", "write"]
