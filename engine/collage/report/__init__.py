"""Render the engine's findings, a `Record` and the smaller reports, as JSON, tables and text."""
