"""Set up a run: the model with its inputs, the toolchains and their targets, and what devices cost."""
