"""The commands around the service, as they are typed: what they print, and their exit codes."""

import json

import pytest
import typer.testing

from vllm_advisor.profile import Event
from vllm_advisor.store.profile_store import ProfileStore
from vllm_tuner.daemon import config as configs
from vllm_tuner.daemon import kept
from vllm_tuner.daemon.cli import adopt, daemon, history, install_service, rollback, status, why
from vllm_tuner.daemon.policy_state import State, dumps
from vllm_tuner.daemon.tenure import lease_name
from vllm_tuner.daemon.testing import FAST, Exporter, profile


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A store, a configuration and an empty runtime folder."""
    monkeypatch.setenv("ADVISOR_DATABASE_URL", f"sqlite:///{tmp_path / 'advisor.db'}")
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    (tmp_path / "daemon.toml").write_text('[deployment]\nnode = "box"\n' + FAST.replace("tick_seconds", "#"))
    return tmp_path


@pytest.fixture
def store(place):
    """What the commands read and write."""
    with ProfileStore.open(place / "advisor.db") as opened:
        yield opened


def typed(app, *words):
    """(exit code, stdout, stderr) of a command."""
    done = typer.testing.CliRunner().invoke(app, list(words))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_an_example_is_a_configuration():
    """What --example prints is read back as all defaults."""
    code, out, _ = typed(daemon.app, "--example")
    assert (0, configs.parse("")) == (code, configs.parse(out))


def test_once_looks_and_says(place):
    """One look at a server, its status as JSON, the lease given back."""
    server = Exporter()
    (place / "daemon.toml").write_text(f'{FAST}[deployment]\nurl = "{server.url}"\nnode = "box"\n')
    code, out, _ = typed(daemon.app, "--config", str(place / "daemon.toml"), "--once", "--json")
    server.close()
    found = json.loads(out)
    assert (0, "watching", True, {"answers": True}) == (code, found["phase"], found["leased"], found["server"])
    with ProfileStore.open(place / "advisor.db") as store:
        assert None is store.holder(lease_name("box"))


def test_status_without_a_daemon(place, store):
    """Exit code 1, and what the store knows, said to be no more than that."""
    store.keep(kept.POLICY, "box", dumps(State(incumbent="abc", attempt=3)))
    _, text, _ = typed(status.app, "--config", str(place / "daemon.toml"))
    assert "box: no daemon runs; last known: watching" in text
    code, out, err = typed(status.app, "--config", str(place / "daemon.toml"), "--json")
    found = json.loads(out)
    assert (1, False, "abc", 3) == (code, found["running"], found["incumbent"], found["attempt"])
    assert "no daemon answers" in err
    store.keep(kept.AWAY, "box", "yes")
    assert "the unit was stopped for a run" in typed(status.app, "--config", str(place / "daemon.toml"))[1]


@pytest.mark.parametrize(("app", "wish"), [(adopt.app, "adopt"), (rollback.app, "rollback")])
def test_wishes_wait_in_the_store(place, store, app, wish):
    """1 while nobody takes them up, 0 where a daemon has the node."""
    code, out, err = typed(app, "--config", str(place / "daemon.toml"))
    assert (1, wish) == (code, store.kept(kept.ASKED, "box"))
    assert "the wish stays" in err
    store.acquire(lease_name("box"))
    code, out, _ = typed(app, "--config", str(place / "daemon.toml"), "--json")
    assert (0, wish) == (code, json.loads(out)["asked"])


def test_history(place, store):
    """The node's own events, the newest last; none is exit code 1."""
    assert 1 == typed(history.app, "--config", str(place / "daemon.toml"))[0]
    store.record(Event("drift", "prompts are longer", "box", (("key", "workload:0"),), 1e9))
    store.record(Event("adopted", "profile abc runs now", "box", (), 2e9))
    store.record(Event("drift", "elsewhere", "other", (), 3e9))
    code, out, _ = typed(history.app, "--config", str(place / "daemon.toml"), "--json")
    assert (0, ["drift", "adopted"]) == (code, [event["kind"] for event in json.loads(out)["events"]])
    _, out, _ = typed(history.app, "--config", str(place / "daemon.toml"), "--kind", "adopted")
    assert "2033-05-18T03:33:20Z  adopted     profile abc runs now" == out.strip()


def test_why(place, store):
    """Of the service: its last decisions; of a profile: its measurement and where it comes from."""
    store.record(Event("kept", "the incumbent stays: +1 %", "box", (), 2e9))
    code, out, _ = typed(why.app, "--config", str(place / "daemon.toml"))
    assert (0, True) == (code, "kept: the incumbent stays: +1 %" in out)
    number = store.save_profile(profile())
    code, out, _ = typed(why.app, number[:6], "--config", str(place / "daemon.toml"), "--json")
    assert (0, number, "tuner test") == (code, json.loads(out)["profile"], json.loads(out)["by"])


def test_the_unit_is_printed(place):
    """--print shows it and writes nothing."""
    code, out, _ = typed(install_service.app, "--config", str(place / "daemon.toml"), "--print")
    assert (0, True) == (code, f"--config {place / 'daemon.toml'}" in out)


@pytest.mark.parametrize(
    "app", [daemon.app, status.app, adopt.app, rollback.app, history.app, why.app, install_service.app]
)
def test_help_shows_examples(app):
    """Each has some."""
    code, out, _ = typed(app, "--help")
    assert (0, True) == (code, "tuner " in out)
