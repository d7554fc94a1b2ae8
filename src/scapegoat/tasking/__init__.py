"""What tasks share: the contract of a task, a loss of a user's own, weights of classes."""
