"""Connections: SQLite in WAL mode with one writer at a time, or PostgreSQL; and the schema brought up to date.

SQLite's driver is told to leave transactions alone, so that ours begin when we say: `BEGIN IMMEDIATE` for a write,
which waits its turn before it has read anything, plain `BEGIN` for a read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlmodel import create_engine

from vllm_advisor.errors import StoreError
from vllm_advisor.store import schema
from vllm_advisor.store.failures import no_driver, translated


if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

    from vllm_advisor.store.schema import Place

_MIGRATIONS = Path(__file__).parent / "migrations"
_CONNECT_S = 5
# Two writers that start on an empty PostgreSQL database take this lock in turn; any number that is only ours.
_UPGRADE_LOCK = 0x76_6C_6C_6D
_WRITES = "advisor_writes"


def connect(place: Place) -> Engine:
    """An engine for the store; nothing is opened yet. Raises StoreError where a driver is missing."""
    try:
        if place.path is None:
            address = make_url(place.url).set(drivername="postgresql+psycopg")
            return create_engine(address, connect_args={"connect_timeout": _CONNECT_S}, pool_pre_ping=True)
        return _sqlite(place)
    except ModuleNotFoundError as error:
        raise no_driver(error) from None
    except ValueError as error:
        raise StoreError(f"{schema.VARIABLE} is no address: {error}", "postgresql://user@host:5432/advisor") from None


def writing(engine: Engine) -> Engine:
    """The same engine, whose transactions take the write lock when they begin."""
    return engine.execution_options(**{_WRITES: True})


def _sqlite(place: Place) -> Engine:
    mode = {"mode": "ro", "uri": "true"} if place.read_only else {}
    name = f"file:{place.path}" if place.read_only else str(place.path)
    address = URL.create("sqlite", database=name, query=mode)
    engine = create_engine(address, connect_args={"timeout": schema.BUSY_MS / 1000})
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: Any, _record: object) -> None:
    """For each new connection; `synchronous=NORMAL` in WAL mode loses nothing when a process is killed."""
    connection.isolation_level = None
    for pragma in (f"busy_timeout={schema.BUSY_MS}", "foreign_keys=ON", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    immediate = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


def prepare(engine: Engine, place: Place) -> None:
    """Bring the schema to HEAD where it is older or absent; a store that is up to date is not written to.

    Raises StoreError: a newer schema, or whatever the database says.
    """
    with translated(place):
        if place.path is not None and not place.read_only:
            _make_folder(place.path)
        with engine.connect() as connection:
            found = revision(connection)
        if found == schema.HEAD:
            return
        if found is not None and found not in schema.REVISIONS:
            raise schema.newer(found, place.shown)
        upgrade(engine, place)


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        hint = f"{schema.VARIABLE}=sqlite:////path/advisor.db"
        raise StoreError(f"{path.parent} cannot be made: {error.strerror}", hint) from None


def revision(connection: Connection) -> str | None:
    """The schema that is there; None: an empty database. Raises StoreError for somebody else's tables."""
    tables = inspect(connection).get_table_names()
    if "alembic_version" in tables:
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if tables:
        raise StoreError(
            f"the database holds other tables than ours ({', '.join(sorted(tables)[:3])})",
            f"give the advisor one of its own: {schema.VARIABLE}=sqlite:////path/advisor.db",
        )
    return None


def upgrade(engine: Engine, place: Place) -> None:
    """Run the migrations in one transaction: killed in the middle, the store is as it was."""
    from alembic import command  # noqa: PLC0415 - only an upgrade needs it
    from alembic.config import Config  # noqa: PLC0415 - only an upgrade needs it

    if place.path is not None:
        with engine.connect() as connection:
            driver = connection.connection.dbapi_connection
            if driver is not None:
                driver.execute("PRAGMA journal_mode=WAL")
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with writing(engine).begin() as connection:
        if place.path is None:
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
