"""Prepare a model: bind shapes, fold constants, merge equal nodes, check that it is valid."""
