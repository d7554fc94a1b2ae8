"""A rule and an attack of one's own; importing the package registers both."""

from my_package.attacks import Loud
from my_package.rules import TrimmedNorm

__all__ = ["Loud", "TrimmedNorm"]
