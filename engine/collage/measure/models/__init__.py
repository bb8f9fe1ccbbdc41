"""The process in which models are prepared and evaluated: whatever a model makes expensive happens there."""
