"""Strategies for Flower: any rule, with Flower's own options; one core for both of its interfaces."""
