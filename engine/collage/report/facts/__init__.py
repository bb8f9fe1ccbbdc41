"""The facts that reports are made of."""
