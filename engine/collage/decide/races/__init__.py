"""Races of whole plans: who runs when, who leaves, and what is kept of it."""
