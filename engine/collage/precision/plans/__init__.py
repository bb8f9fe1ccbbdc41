"""Runs of whole plans: what their outputs, and a metric of the user's, say of them, and what they keep to."""
