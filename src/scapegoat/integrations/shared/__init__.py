"""What live federations of every framework share: replies as vectors, the rule's server, the hostile seat, the outcome.

Nothing here knows Flower or NVIDIA FLARE: models and replies are mappings from names to NumPy arrays.
"""
