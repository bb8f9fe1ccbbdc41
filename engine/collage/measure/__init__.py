"""Builds, checks and times candidates in worker processes, on values captured from a real run."""
