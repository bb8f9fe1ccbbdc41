"""Functions behind the commands, one module each."""
