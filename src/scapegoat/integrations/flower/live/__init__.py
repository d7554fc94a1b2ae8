"""The audit of a live federation: its processes, its hostile node, and what came out."""
