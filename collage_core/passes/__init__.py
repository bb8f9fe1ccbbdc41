"""Transformations from model to model."""
