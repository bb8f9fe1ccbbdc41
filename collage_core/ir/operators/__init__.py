"""Operator semantics: fusion kinds, attribute defaults, quantisation, rounding and bounds of results."""
