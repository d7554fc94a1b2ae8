"""What every hospital runs."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from hospital_federation.task import Net, accuracy, load_data, train

app = ClientApp()


def setting(context: Context):
    partition, nodes = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    return partition, *load_data(partition, nodes)


@app.train()
def train_locally(message: Message, context: Context) -> Message:
    partition, x, y = setting(context)
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = train(
        model,
        x,
        y,
        epochs=int(context.run_config["local-epochs"]),
        lr=float(context.run_config["learning-rate"]),
        batch_size=int(context.run_config["batch-size"]),
        seed=1000 * int(message.content["config"]["server-round"]) + partition,
    )
    metrics = MetricRecord({"num-examples": len(y), "loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate_locally(message: Message, context: Context) -> Message:
    _, x, y = setting(context)
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    metrics = MetricRecord({"num-examples": len(y), "accuracy": accuracy(model, x, y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
