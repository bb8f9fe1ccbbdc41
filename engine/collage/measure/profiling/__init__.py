"""Profiles of kernels: made in a worker, kept in the tuning database, given to the search."""
