"""Speed, as ratios measured in one run (`make bench`): one file per subject, each with `run(quick) -> dict`."""
