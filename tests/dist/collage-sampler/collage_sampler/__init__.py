"""The example plugin of `docs/plugin-authors/writing-a-plugin.md`, installed as a user would install one."""
