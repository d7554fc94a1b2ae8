"""Scapegoat's rules and attacks inside other people's systems."""
