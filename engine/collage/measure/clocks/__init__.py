"""Time a kernel as a plan would run it: on the host behind other work, on a device over copies of its weights."""
