"""What SQLite and PostgreSQL share: one set of statements over a small interface to a database."""
