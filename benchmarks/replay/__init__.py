"""Replay searches over databases of real measurements: what a search does, at the cost of seconds recorded before."""
