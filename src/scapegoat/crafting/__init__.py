"""What attacks share: the contract of an attack, measures, exact line search, greedy choice, the black-box aim."""
