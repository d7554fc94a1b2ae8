"""The median over whoever can be used; what happened goes to a file."""

import dataclasses
import json
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from scapegoat.integrations.flower import CoordinateMedian

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = CoordinateMedian(fraction_evaluate=0.0, round_timeout=float(context.run_config["round-timeout"]))
    arrays = ArrayRecord({"w": Array(np.zeros(2000, np.float32))})
    result = strategy.start(grid, arrays, num_rounds=int(context.run_config["rounds"]))
    told = {
        "value": float(result.arrays["w"].numpy().mean()),
        "history": [dataclasses.asdict(report) for report in strategy.history],
    }
    Path(str(context.run_config["result"])).write_text(json.dumps(told), encoding="utf-8")
