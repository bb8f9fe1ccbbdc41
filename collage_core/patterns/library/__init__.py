"""Builders of patterns that several plugins share; each module is one family of operator groups."""
