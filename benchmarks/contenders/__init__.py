"""Contenders: files with a function `setup`, loaded by path in a process of their own."""
