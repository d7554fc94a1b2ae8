"""What `scapegoat bench` runs: one file a subject, each with `run(quick) -> dict`."""
