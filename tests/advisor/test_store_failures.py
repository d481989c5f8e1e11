"""What the store says when it cannot: one line with the command that helps, for each cause, from the real database."""

import sqlite3
import sys

import platformdirs
import pytest

from vllm_advisor.errors import StoreError
from vllm_advisor.plan import Plan
from vllm_advisor.profile import Event, Trial
from vllm_advisor.store import lookup, schema
from vllm_advisor.store.failures import _postgres
from vllm_advisor.store.profile_store import ProfileStore


LOOSE = ((("gpus", "H100"),),)
TRIAL = Trial("s", "serve", Plan("org/model"))


@pytest.fixture
def path(tmp_path):
    """A store with one trial, closed."""
    file = tmp_path / "advisor.db"
    with ProfileStore.open(file) as store:
        store.add_trial(TRIAL)
    return file


def refused(action, *args):
    """The error of an action; message and hint are one line each."""
    with pytest.raises(StoreError) as caught:
        action(*args)
    error = caught.value
    assert 4 == error.exit_code
    assert error.hint
    assert "\n" not in error.message + error.hint
    return f"{error.message} | {error.hint}"


def test_a_newer_schema_asks_for_an_upgrade(path):
    """A release that is older than the store does not touch it, and the reader gives a note."""
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0999'")
    connection.close()
    said = refused(ProfileStore.open, path)
    assert "0999" in said
    assert "pip install --upgrade vllm-advisor" in said
    assert "0999" in lookup.profiles_like(LOOSE, path).note


@pytest.mark.parametrize("at", [0, 4096], ids=["header", "pages"])
def test_a_corrupt_file_says_how_to_start_anew(path, at):
    """A damaged header is no database, damaged pages are corrupt: both end in one line, and the reader in a note."""
    content = bytearray(path.read_bytes())
    content[at:] = b"\xff" * (len(content) - at)
    path.write_bytes(content)

    said = refused(ProfileStore.open, path)
    assert f"mv {path} {path}.broken" in said
    assert str(path) in lookup.profiles_like(LOOSE, path).note


def test_a_file_that_is_no_database(tmp_path):
    """A text file is refused by name; the reader gives a note and never raises."""
    file = tmp_path / "advisor.db"
    file.write_text("shopping list " * 100)
    assert "is no SQLite database" in refused(ProfileStore.open, file)
    found = lookup.profiles_like(LOOSE, file)
    assert ((), True) == (found.profiles, "no SQLite database" in found.note)


def test_somebody_elses_database_is_left_alone(tmp_path):
    """Other tables than ours: nothing is made in it."""
    file = tmp_path / "theirs.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE customers (id INTEGER)")
    connection.close()
    assert "customers" in refused(ProfileStore.open, file)


def test_a_full_disk_says_df(path):
    """SQLite's own limit of pages stands for the disk: SQLITE_FULL is what both raise."""
    with ProfileStore.open(path) as store:
        with store._engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.connection.dbapi_connection.execute(f"PRAGMA max_page_count = {pages}")
        said = refused(store.record, Event("big", "x" * 1_000_000))
        assert "the disk is full | df -h" in said
        assert 1 == len(store.trials())


def test_a_read_only_file_can_be_read_and_not_written(path):
    """SQLite's own `mode=ro`: reading works, writing says chmod, a missing file is said too."""
    with ProfileStore.open(f"sqlite:///file:{path}?mode=ro&uri=true") as store:
        assert 1 == len(store.trials())
        assert "is read-only | chmod u+w" in refused(store.add_trial, TRIAL)
    assert "cannot be opened" in refused(ProfileStore.open, f"sqlite:///file:{path}.not?mode=ro")


def test_a_folder_that_cannot_be_made(tmp_path):
    """A file where the folder should be."""
    (tmp_path / "file").write_text("")
    assert "cannot be made" in refused(ProfileStore.open, tmp_path / "file" / "below" / "advisor.db")


def test_a_locked_store_names_who_to_ask(path, monkeypatch):
    """Another writer that does not end: after the wait, fuser; readers are not disturbed."""
    monkeypatch.setattr(schema, "BUSY_MS", 50)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with ProfileStore.open(path) as store:
        assert "fuser -v" in refused(store.add_trial, TRIAL)
        assert 1 == len(store.trials())
    other.close()


def test_no_driver_for_postgresql_says_what_to_install(monkeypatch):
    """Both the store and the reader."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    address = "postgresql://me:secret@127.0.0.1:1/advisor"
    assert "pip install 'vllm-advisor[postgres]'" in refused(ProfileStore.open, address)
    assert "no driver" in lookup.profiles_like(LOOSE, address).note


def test_a_server_that_does_not_answer_and_no_password_in_the_message():
    """A closed port: one line, without the secret."""
    pytest.importorskip("psycopg", reason="no driver: pip install 'psycopg[binary]'")
    said = refused(ProfileStore.open, "postgresql://me:secret@127.0.0.1:1/advisor")
    assert "postgresql://me@127.0.0.1:1/advisor does not answer" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("state", "says"), [("28P01", "refuses the user"), ("3D000", "createdb"), ("53100", "df -h"), ("XX000", "says")]
)
def test_postgresql_speaks_by_state(state, says):
    """By the class of its error's state."""
    error = RuntimeError("what the server wrote")
    error.sqlstate = state
    found = _postgres(error, schema.Place("postgresql://h/d"))
    assert says in f"{found.message} | {found.hint}"


@pytest.mark.parametrize("address", ["mysql://h/d", "sqlite://", "sqlite:///:memory:", "postgresql://h:port/d"])
def test_other_places_are_refused(address):
    """Another database, memory, and an address that is none."""
    refused(ProfileStore.open, address)


def test_where_the_store_lies(monkeypatch, tmp_path):
    """The variable, a file, the user's data folder; nothing is made by looking."""
    monkeypatch.delenv(schema.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert tmp_path / "vllm-advisor" / "advisor.db" == schema.place().path
    assert ((), "") == lookup.profiles_like(LOOSE)
    assert [] == list(tmp_path.iterdir())
    monkeypatch.setenv(schema.VARIABLE, "sqlite:////srv/a.db")
    assert "/srv/a.db" == schema.place().shown
    assert "postgresql://u@h:5/d" == schema.place("postgres://u:p@h:5/d?sslmode=require").shown


def test_the_reader_reads_a_folder_that_cannot_be_written(path, monkeypatch):
    """Where SQLite cannot make its own files beside the store, it is taken as a file that does not change."""
    real = sqlite3.connect

    def connect(name, **options):
        return real(name.replace("advisor.db?mode=ro", "absent.db?mode=ro"), **options)

    monkeypatch.setattr(sqlite3, "connect", connect)
    assert ((), "") == lookup.profiles_like(LOOSE, path)
    (path.parent / "advisor.db-wal").write_bytes(b"x")
    assert "cannot be opened" in lookup.profiles_like(LOOSE, path).note


def test_a_writing_session_is_in_wal_mode_with_foreign_keys(path):
    """As promised: WAL, foreign keys, a busy timeout, NORMAL."""
    with ProfileStore.open(path) as store, store._engine.connect() as connection:
        names = ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]
    assert ["wal", 1, 5000, 1] == found


@pytest.mark.parametrize("data", [None, "", "/srv/data"])
def test_the_default_place_is_platformdirs(data, monkeypatch):
    """What is said here for Linux, to save the library's import, is what the library says."""
    monkeypatch.delenv("ADVISOR_DATABASE_URL", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME") if data is None else monkeypatch.setenv("XDG_DATA_HOME", data)
    wanted = platformdirs.user_data_path("vllm-advisor", appauthor=False) / "advisor.db"
    assert wanted == schema.place().path


def test_where_there_is_no_store_nobody_looks(tmp_path):
    """A file that is not there; an address or a mistake is looked into, and says why."""
    (tmp_path / "there.db").touch()
    asked = [tmp_path / "none.db", tmp_path / "there.db", "postgresql://h/advisor", "mysql://h/advisor"]
    assert [False, True, True, True] == [schema.may_exist(place) for place in asked]
