"""Sweeps as data, and the runs that they come to."""

from scapegoat.sweeping.plan import Cell, Plan, kinds, parse_only, plan, saved, stored, write
from scapegoat.sweeping.sweep import AnySweep, CostSweep, Sweep

__all__ = ["AnySweep", "Cell", "CostSweep", "Plan", "Sweep", "kinds", "parse_only", "plan", "saved", "stored", "write"]
