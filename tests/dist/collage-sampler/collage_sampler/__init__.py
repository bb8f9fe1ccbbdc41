"""The example plugin of `docs/writing-a-plugin.md`, installed as a user would install one."""
