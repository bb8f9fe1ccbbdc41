"""The worker's side of measuring: build, check and time one candidate."""
