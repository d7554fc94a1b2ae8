"""Sweeps as data, and the runs that they come to."""

from scapegoat.sweeping.grid import Cell, Grid, kinds, lay_out, parse_only, saved, stored, write
from scapegoat.sweeping.sweep import AnySweep, Axis, CostSweep, Figure, Point, Sweep, Table

__all__ = [
    "AnySweep",
    "Axis",
    "Cell",
    "CostSweep",
    "Figure",
    "Grid",
    "Point",
    "Sweep",
    "Table",
    "kinds",
    "parse_only",
    "lay_out",
    "saved",
    "stored",
    "write",
]
