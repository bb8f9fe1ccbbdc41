"""Serve jobs on a machine of a runner: what its process there makes, and what it starts."""
