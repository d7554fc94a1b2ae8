"""What rules share: the stack of updates, the contract of a rule, pipelines, order statistics, clustering, noise."""
