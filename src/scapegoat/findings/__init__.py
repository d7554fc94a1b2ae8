"""What runs found, as Python users hold it: a folder of runs, a sweep, an audit. Each shows itself in a notebook.

sg.load("audit").save("report.html")
sg.sweep("main-c08", data=["location30"], out="runs").table()
"""

from scapegoat.findings.folder import Findings, load
from scapegoat.findings.shown import Shown
from scapegoat.findings.sweeps import sweep

__all__ = ["Findings", "Shown", "load", "sweep"]
