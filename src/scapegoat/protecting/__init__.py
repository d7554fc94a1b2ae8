"""What protections of training share: the contract, their place in a spec, and what their noise is worth."""
