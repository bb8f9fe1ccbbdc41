"""Build a plan into an executable, and check its outputs."""
