"""What every hospital runs, as in FLARE's hello-pt."""

import argparse

import nvflare.client as flare
import torch
from hospital_sites import Net, load_data, train

parser = argparse.ArgumentParser()
parser.add_argument("--clients", type=int, default=10)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--lr", type=float, default=0.2)


def main() -> None:
    options = parser.parse_args()
    torch.set_num_threads(1)
    flare.init()
    site = flare.get_site_name()
    x, y = load_data(site, options.clients)
    model = Net()
    while flare.is_running():
        received = flare.receive()
        if received is None:
            break
        model.load_state_dict({name: torch.as_tensor(value) for name, value in received.params.items()})
        seed = 1000 * (received.current_round or 0) + int(site.rpartition("-")[2])
        loss, steps = train(model, x, y, epochs=options.epochs, lr=options.lr, seed=seed)
        flare.send(
            flare.FLModel(
                params=model.state_dict(),
                metrics={"loss": loss},
                meta={"NUM_STEPS_CURRENT_ROUND": steps},
            )
        )


if __name__ == "__main__":
    main()
