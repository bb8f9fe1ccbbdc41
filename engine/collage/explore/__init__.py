"""Measure candidates and search for the cheapest plan."""
