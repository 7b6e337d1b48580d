"""Measures a model on a machine."""
