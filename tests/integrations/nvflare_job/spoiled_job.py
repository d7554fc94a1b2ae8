"""The recipe of a federation whose sites may go wrong."""

from __future__ import annotations

from pathlib import Path

from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.client.config import TransferType
from sites import Net
from spoiling import Spoiling

from scapegoat.integrations.nvflare import ReputationAngularTrimmedMean

HERE = Path(__file__).parent


def recipe(
    *,
    clients: int,
    rounds: int,
    wrong: dict[str, list[str]],
    marks: str,
    checkpoint: str | None = None,
    patience: float = 60.0,
) -> FedAvgRecipe:
    made = FedAvgRecipe(
        name="sites",
        model=Net(),
        min_clients=clients,
        num_rounds=rounds,
        train_script=str(HERE / "client.py"),
        aggregator=ReputationAngularTrimmedMean(trim=1),
        params_transfer_type=TransferType.DIFF,
        initial_ckpt=checkpoint,
        key_metric="",
    )
    made.add_client_output_filter(Spoiling(wrong, marks), tasks=["train"])
    made.add_server_config({"dead_client_grace_period": patience, "dead_client_check_lead_time": patience})
    return made
