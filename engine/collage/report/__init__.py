"""Renders what the pipeline found out: a `Record` and the smaller reports, as JSON, tables and text."""
