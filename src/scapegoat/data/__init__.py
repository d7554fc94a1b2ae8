"""Data sets: one reader a file, for the files as they are published."""

from scapegoat.data.base import Dataset, DataSpec, get, register, registry

__all__ = ["Dataset", "DataSpec", "get", "register", "registry"]
