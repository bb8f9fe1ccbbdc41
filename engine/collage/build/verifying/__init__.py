"""See whether a plan computes what the model says, and which kernel is to blame where it does not."""
