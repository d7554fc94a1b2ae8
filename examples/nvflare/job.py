"""Ten hospitals, one robust aggregator: `python job.py` in the simulator, `python job.py --poc` in real processes."""

import argparse
from pathlib import Path

from hospital_sites import Net
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.client.config import TransferType
from nvflare.recipe import PocEnv, SimEnv

from scapegoat.integrations import nvflare as scapegoat

HERE = Path(__file__).parent


def recipe(
    clients: int = 10,
    rounds: int = 20,
    aggregator: str = "ReputationAngularTrimmedMean",
    differences: bool = False,
    checkpoint: str | None = None,
) -> FedAvgRecipe:
    """FLARE's own FedAvg with the aggregator of that name; `FedAvg` leaves FLARE's weighted mean."""
    return FedAvgRecipe(
        name="hospitals",
        model=Net(),
        min_clients=clients,
        num_rounds=rounds,
        train_script=str(HERE / "client.py"),
        train_args=f"--clients {clients}",
        aggregator=None if aggregator == "FedAvg" else getattr(scapegoat, aggregator)(),
        params_transfer_type=TransferType.DIFF if differences else TransferType.FULL,
        initial_ckpt=checkpoint,
        key_metric="",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--aggregator", default="ReputationAngularTrimmedMean")
    parser.add_argument("--poc", action="store_true")
    options = parser.parse_args()
    where = PocEnv(num_clients=options.clients) if options.poc else SimEnv(num_clients=options.clients)
    run = recipe(options.clients, options.rounds, options.aggregator).execute(where)
    print("results are in", run.get_result(clean_up=False))
