"""Whole plans timed in processes of their own, interleaved."""
