"""The systemd unit: read by systemd itself, hardened, and never written over somebody's own."""

import shutil
import socket
import subprocess

import pytest

from vllm_advisor.errors import BadInput, UsageError
from vllm_tuner.daemon import config as configs
from vllm_tuner.daemon import service
from vllm_tuner.daemon.sd_notify import Supervisor
from vllm_tuner.daemon.service import Wish


ADOPT = 'mode = "adopt"\n[unit]\nkind = "{}"\nname = "vllm"\n'


def made(text="", **wish):
    """The unit for a configuration."""
    return service.unit(configs.parse(text), None, Wish(**wish))


def analyzed(tmp_path, text, *how):
    """What systemd-analyze says of a unit."""
    path = tmp_path / "vllm-tuner.service"
    path.write_text(text)
    return subprocess.run(["systemd-analyze", *how, path], capture_output=True, text=True, check=False)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("", {}),
        ("", {"account": "root"}),
        ("", {"user": True}),
        (ADOPT.format("systemd"), {}),
        (ADOPT.format("child"), {}),
    ],
)
def test_systemd_reads_it(tmp_path, text, wish):
    """Every kind of unit passes `systemd-analyze verify` without a word about it."""
    done = analyzed(tmp_path, made(text, **wish), "verify")
    assert (0, []) == (done.returncode, [line for line in done.stderr.splitlines() if "vllm-tuner" in line])


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_a_mistake_would_be_found(tmp_path):
    """The check can fail: an unknown key is named."""
    path = tmp_path / "vllm-tuner.service"
    path.write_text(made().replace("NoNewPrivileges=yes", "NoNewPrivilege=yes"))
    assert any("NoNewPrivilege" in line for line in service.verify(path))


def test_it_is_hardened():
    """A dynamic user, a read-only system, no privileges, a watchdog; SIGHUP reloads and SIGTERM has time."""
    lines = made().splitlines()
    wanted = (
        "Type=notify", "DynamicUser=yes", "ProtectSystem=strict", "NoNewPrivileges=yes", "CapabilityBoundingSet=",
        "WatchdogSec=180", "ExecReload=/bin/kill -HUP $MAINPID", "KillMode=mixed", "TimeoutStopSec=20",
        "Restart=on-failure", "StateDirectory=vllm-advisor", "RuntimeDirectory=vllm-advisor",
    )  # fmt: skip
    assert [] == [line for line in wanted if line not in lines]
    assert len(lines) == len([line for line in lines if "MemoryDenyWriteExecute" not in line])


def test_who_restarts_a_unit_may_write_its_drop_in():
    """Only then it runs as root, and only that folder is open; an own account is taken as it is."""
    text = made(ADOPT.format("systemd"))
    assert "DynamicUser" not in text
    assert "ReadWritePaths=-/etc/systemd/system/vllm.service.d" in text
    assert "User=tuner\n" in made(account="tuner")
    assert "DynamicUser" not in made(user=True)


def test_a_units_own_changes_are_kept(tmp_path, monkeypatch, capsys):
    """Written once, again the same is fine, a changed one is not replaced without --force."""
    monkeypatch.setattr(service, "_folder", lambda _: tmp_path)
    monkeypatch.setattr(service, "verify", lambda _: [])
    config = tmp_path / "daemon.toml"
    config.write_text("tick_seconds = 15.0\n")
    assert (0, 0) == (service.install(config, Wish(), as_json=False), service.install(config, Wish(), as_json=True))
    target = tmp_path / "vllm-tuner.service"
    assert f"--config {config}" in target.read_text()
    target.write_text("mine")
    with pytest.raises(UsageError, match="is there and differs"):
        service.install(config, Wish(), as_json=False)
    assert 0 == service.install(config, Wish(force=True), as_json=False)
    assert "systemctl enable --now vllm-tuner" in capsys.readouterr().out


def test_what_cannot_be_installed(tmp_path, monkeypatch):
    """A name that is a path, a configuration that is broken, a folder that is not ours."""
    with pytest.raises(UsageError, match="no name of a unit"):
        service.install(None, Wish(name="../x"), as_json=False)
    (tmp_path / "daemon.toml").write_text("mod = 1")
    with pytest.raises(BadInput, match="no key"):
        service.install(tmp_path / "daemon.toml", Wish(), as_json=False)
    monkeypatch.setattr(service, "_folder", lambda _: tmp_path / "daemon.toml")
    with pytest.raises(BadInput, match="cannot be written"):
        service.install(None, Wish(), as_json=False)


def test_a_users_manager_has_no_targets_of_the_system(tmp_path, monkeypatch, capsys):
    """Neither what it starts after nor what comes next is the system's."""
    assert "network-online.target" not in made(user=True)
    assert "After=network-online.target\n" in made()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert 0 == service.install(None, Wish(user=True), as_json=False)
    told = capsys.readouterr().out
    assert ("systemctl --user enable --now vllm-tuner" in told, "journalctl --user -fu vllm-tuner" in told) == (
        True,
    ) * 2


def test_what_is_started_is_quoted(monkeypatch):
    """A path with what systemd would replace stays a path; its program's dollars are no variables."""
    monkeypatch.setattr(service, "command", lambda _: ["/a b/$x%h", "daemon", "--config", "/c $d/100%.toml"])
    assert 'ExecStart="/a b/$x%%h" daemon --config "/c $$d/100%%.toml"\n' in made()


def test_a_reload_is_told(tmp_path, monkeypatch):
    """sd_notify(3): RELOADING=1 with the time, then READY=1; what is told of a tick stays one line."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        supervisor = Supervisor()
        supervisor.reloading()
        supervisor.ready("reloaded")
        supervisor.alive("b\nREADY=1")
        told = [manager.recv(4096).decode().splitlines() for _ in range(3)]
    assert ["RELOADING=1", "STATUS=reloading"] == [told[0][0], told[0][2]]
    assert told[0][1].removeprefix("MONOTONIC_USEC=").isdigit()
    assert [["READY=1", "STATUS=reloaded"], ["WATCHDOG=1", "STATUS=b READY=1"]] == told[1:]
