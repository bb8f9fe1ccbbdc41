"""Set up a run: the model with its inputs, the toolchains and their targets, and the devices' copy costs."""
