"""Alembic's scripts: one module a schema, in `versions`."""
