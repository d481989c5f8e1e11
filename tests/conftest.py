"""The test run can't see the developer's machine: no cache, no token, no colour, no width of a real terminal."""

import pytest


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch, tmp_path_factory):
    """Home, caches and tokens are empty, and the hub is off, whatever the developer has."""
    home = tmp_path_factory.mktemp("home", numbered=True)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HF_HOME", str(home / "hf"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
