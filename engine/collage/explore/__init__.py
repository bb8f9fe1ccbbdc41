"""Measure candidates and search the cheapest plan."""
