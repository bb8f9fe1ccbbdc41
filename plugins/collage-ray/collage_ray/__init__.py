"""Machines of a Ray cluster, for Collage to measure and optimize on."""
