"""What the server runs: a strategy of scapegoat's or Flower's, by name, that needs no data of the server's own."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp import strategy as flower

from hospital_federation.task import Net
from scapegoat.integrations import flower as scapegoat

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    name = str(config["strategy"])
    home = flower if hasattr(flower, name) and not hasattr(scapegoat, name) else scapegoat
    # Flower's own strategies know no weight decay.
    decay = {"weight_decay": float(config["weight-decay"])} if home is scapegoat else {}
    # Everybody evaluates the model after every round; set fraction_evaluate=0.0 to save the time.
    strategy = getattr(home, name)(fraction_train=float(config["fraction-train"]), fraction_evaluate=1.0, **decay)
    torch.manual_seed(0)
    result = strategy.start(
        grid, ArrayRecord(Net().state_dict()), num_rounds=int(config["num-server-rounds"]), timeout=120
    )
    for server_round, metrics in result.train_metrics_clientapp.items():
        print(f"round {server_round}: kept {metrics.get('kept-nodes', 'everybody')}")
