"""What operators do: how they fuse, their defaults, quantisation, rounding and bounds of their results."""
