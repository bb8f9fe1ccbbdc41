"""Candidates that targets propose for one graph, and the plans made of them."""
