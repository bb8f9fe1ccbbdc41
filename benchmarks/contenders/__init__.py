"""Contenders: files with a function `setup`, loaded by path in a separate process."""
