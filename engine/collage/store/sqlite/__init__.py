"""The tuning store in one SQLite file, which is the default."""
