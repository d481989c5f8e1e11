"""Run by Alembic for each upgrade: on the connection that `engine.upgrade` holds, in its transaction."""

from __future__ import annotations

from alembic import context
from sqlmodel import SQLModel

from vllm_advisor.store import tables  # noqa: F401 - declares the metadata


connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=SQLModel.metadata, transactional_ddl=True)
context.run_migrations()
