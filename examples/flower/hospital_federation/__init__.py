"""Hospitals that train a classifier together."""
