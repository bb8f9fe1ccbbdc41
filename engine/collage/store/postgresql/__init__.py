"""The tuning store on a PostgreSQL server, shared by machines: `pip install 'collage-engine[postgresql]'`.

psycopg is PostgreSQL's usual driver for Python, and typed. SQLAlchemy was the other choice: our statements are few and
the same for both databases, while the SQLite store needs what it hides (pragmas, salvaging, opening by URI).
"""

from collage.store.postgresql.postgres_store import PostgresStore

__all__ = ["PostgresStore"]
