"""Time whole plans, interleaved, in separate processes."""
