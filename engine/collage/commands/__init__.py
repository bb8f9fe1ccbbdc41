"""The functions behind the commands, one module each."""
