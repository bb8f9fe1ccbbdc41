"""Decide in which precision each region of a model is computed, under a bound on the error of the outputs."""
