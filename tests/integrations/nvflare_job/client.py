"""What every site runs."""

import nvflare.client as flare
import sites
import torch


def main() -> None:
    flare.init()
    site = flare.get_site_name()
    while flare.is_running():
        received = flare.receive()
        if received is None:
            break
        given = {name: value.numpy() for name, value in received.params.items()}
        model = sites.trained(given, site, received.current_round)
        params = {name: torch.from_numpy(value) for name, value in model.items()}
        flare.send(flare.FLModel(params=params, metrics={"loss": 1.0}, meta={"NUM_STEPS_CURRENT_ROUND": 1}))


if __name__ == "__main__":
    main()
