"""Fused groups that no library has one kernel for: which there are in real models, and what they take."""
