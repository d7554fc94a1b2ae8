"""Every node adds one to the model; what else it does is in its configuration."""

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    behaviour = context.node_config["behaviour"]
    folder = Path(str(context.node_config["folder"]))
    server_round = message.content["config"]["server-round"]
    value = message.content["arrays"]["w"].numpy() + 1
    if behaviour == "nan":
        value = np.full_like(value, np.nan)
    elif behaviour == "wrong shape":
        value = value.reshape(2, -1)
    elif behaviour == "hundredfold":
        value = np.tile(value, 100)
    elif behaviour == "late" and server_round == 1:
        while not (folder / "round 2").exists():  # whatever the machine's pace, the reply comes in the next round
            time.sleep(0.1)
    elif behaviour == "killed":
        (folder / "training").touch()
        time.sleep(600)
    elif behaviour == "honest":
        (folder / f"round {server_round}").touch()
    array = Array(value)
    if behaviour == "unreadable":  # a header that ends within a string
        array = Array("float32", value.shape, "numpy.ndarray", b"\x93NUMPY\x01\x00\x0b\x00{'descr': '")
    content = {"arrays": ArrayRecord({"w": array}), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(content), reply_to=message)
