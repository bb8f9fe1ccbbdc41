"""Time whole plans end to end, and decide which one wins."""
