"""The systemd unit under a real manager: what is written is what runs, and what runs is what is told."""

import os
import sys

import pytest

from vllm_advisor.errors import EngineError, UsageError
from vllm_advisor.plan import LaunchCommand
from vllm_tuner.daemon.units import systemd
from vllm_tuner.daemon.units.managed import State
from vllm_tuner.daemon.units.rewrite import rewrite
from vllm_tuner.daemon.units.systemd import Systemd


SLEEP = LaunchCommand(("/bin/sleep", "601"))
OTHER = LaunchCommand(("/bin/sleep", "602"))
# Words that a shell, systemd's quoting, its variables or its specifiers could take for something else.
ODD = ("a b", "", "$HOME", "${HOME}", "$$", "100%", "%h", "%%", 'say "hi"', "it's", "back\\slash", "\\", "\\n", "a\nb",
       "tab\tbed", ";", "|", "#x", "é€😀", '{"a": "$b"}', "-x=%i", "\x01\x7f")  # fmt: skip
WAITS = (sys.executable, "-S", "-c", "import time; time.sleep(600)")


def test_another_command_and_back(manager, unit):
    """A drop-in, and the manager runs it; without it the operator's own command runs, and nothing of ours is left."""
    made = unit("ExecStart=/bin/sleep 600")
    assert (State(up=True), ("/bin/sleep", "600")) == (made.running(), made.command().argv)
    made.start(SLEEP, "abc")
    manager.until_runs(made, "abc")
    assert (SLEEP.argv, ("/bin/sleep", "600")) == (manager.argv(made.name), made.command().argv)
    made.start(OTHER, "def")
    manager.until_runs(made, "def")
    assert OTHER.argv == manager.argv(made.name)
    made.restore()
    manager.until_runs(made, "")
    assert (("/bin/sleep", "600"), []) == (manager.argv(made.name), list(made.drop_in.parent.iterdir()))
    assert "no" == manager.show(made.name, "NeedDaemonReload")["NeedDaemonReload"]


def test_a_unit_that_makes_way_comes_back(manager, unit):
    """Restart=always does not bring it back; the same profile does, and so does the way back to its own command."""
    made = unit("Restart=always", "ExecStart=/bin/sleep 600")
    made.start(SLEEP, "abc")
    manager.until_runs(made, "abc")
    made.stop()
    assert (False, ()) == (made.running().up, made.processes())
    made.start(SLEEP, "abc")
    manager.until_runs(made, "abc")
    made.stop()
    made.restore()
    manager.until_runs(made, "")
    assert ("/bin/sleep", "600") == manager.argv(made.name)


def test_odd_words_arrive(manager, unit):
    """Dollars, per cent signs, quotes, backslashes, new lines: literal in arguments and in variables."""
    made = unit("ExecStart=/bin/sleep 600")
    made.start(LaunchCommand((*WAITS, *ODD), tuple((f"V{i}", word) for i, word in enumerate(ODD))), "abc")
    manager.until_runs(made, "abc")
    manager.until(lambda: manager.argv(made.name)[:1] == WAITS[:1])
    assert (*WAITS, *ODD) == manager.argv(made.name)
    found = manager.environment(made.name)
    assert ODD == tuple(found[f"V{i}"] for i in range(len(ODD)))


@pytest.mark.parametrize(
    "text",
    [
        r"""a 'b c' "d 'e'" f"g h"i '' \x41\101\u0041 'it\'s' "\"q\"" b\sc d\\e \. '\d+' x$y $$5 100%%""",
        "one \\\n# no word\n ; nor this\n   two \\\n   'three four'",
    ],
)
def test_an_own_command_is_read_as_systemd_reads_it(manager, unit, text):
    """Quotes, escapes, lines that go on: `command` tells the words that the process got."""
    made = unit(f'ExecStart={sys.executable} -S -c "import time; time.sleep(600)" {text}')
    manager.until(lambda: manager.argv(made.name)[:1] == WAITS[:1])
    assert manager.argv(made.name) == made.command().argv


def test_variables_of_the_operator_stay_variables(manager, unit):
    """`${MODEL}`, `$EXTRA` and `%N` mean in the new command what they meant in the old one."""
    made = unit("Environment=MODEL=m-1 'EXTRA=--port 9'", f"ExecStart={' '.join(WAITS[:2])} -c "
                '"import time; time.sleep(600)" vllm serve ${MODEL} $EXTRA --name %N --max-num-seqs 8')  # fmt: skip
    own = made.command()
    made.start(LaunchCommand((*own.argv[:-1], "4", "$MODEL")), "abc")
    manager.until_runs(made, "abc")
    manager.until(lambda: manager.argv(made.name)[:1] == WAITS[:1])
    name = made.name.removesuffix(".service")
    words = ("vllm", "serve", "m-1", "--port", "9", "--name", name, "--max-num-seqs", "4", "$MODEL")
    assert words == manager.argv(made.name)[4:]


@pytest.mark.slow
def test_a_plan_in_a_multi_line_command(manager, unit, tmp_path):
    """The common form of a vLLM unit: the plan's knobs replace those that stood there, on whatever line."""
    tool = tmp_path / "vllm"
    tool.write_text(f"#!{sys.executable} -S\nimport time; time.sleep(600)\n")
    tool.chmod(0o755)
    made = unit(f"ExecStart={tool} serve m \\", "  --max-num-seqs 8 \\", "  --chat-template '/a b/t.jinja'")
    made.start(rewrite(made.command(), LaunchCommand(("vllm", "serve", "m", "--max-num-seqs", "4"))), "abc")
    manager.until_runs(made, "abc")
    manager.until(lambda: "serve" in manager.argv(made.name))
    assert ("serve", "m", "--chat-template", "/a b/t.jinja", "--max-num-seqs", "4") == manager.argv(made.name)[3:]


def test_processes_are_found(manager, unit):
    """All of the unit's control group, in whatever hierarchy this host has it, children included."""
    made = unit("ExecStart=/bin/sh -c '/bin/sleep 600 & /bin/sleep 600 & wait'")
    manager.until(lambda: len(made.processes()) == 3)
    main = int(manager.show(made.name, "MainPID")["MainPID"])
    assert main in [process.number for process in made.processes()]
    manager.call("stop", made.name)
    assert () == made.processes()


@pytest.mark.parametrize("tree", ["", "unified", "systemd"])
def test_processes_in_each_tree_of_control_groups(unit, tmp_path, monkeypatch, tree):
    """cgroup v2 alone, hybrid, v1 alone: wherever the group is, with those below it."""
    made = unit("ExecStart=/bin/sleep 600")
    group = tmp_path / tree / made._show()["ControlGroup"].lstrip("/")
    (group / "below").mkdir(parents=True)
    (group / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (group / "below/cgroup.procs").write_text(f"{os.getppid()}\n0\n")
    roots = [tmp_path / root.relative_to("/sys/fs/cgroup") for root in systemd._CGROUPS]
    monkeypatch.setattr(systemd, "_CGROUPS", roots)
    assert {os.getpid(), os.getppid()} == {process.number for process in made.processes()}


def test_drop_ins_of_the_operator(manager, unit):
    """Their variables stay; the command of `systemctl edit`'s override.conf is the own one; ours comes behind it."""
    made = unit("ExecStart=/bin/sleep 600")
    edited = "[Service]\nEnvironment=HF_HOME=/d VLLM_X=0\nExecStart=\nExecStart=/bin/sleep 599\n"
    manager.write(f"{made.name}.d/override.conf", edited)
    assert ("/bin/sleep", "599") == made.command().argv
    made.start(LaunchCommand(SLEEP.argv, (("VLLM_X", "1"),)), "abc")
    manager.until_runs(made, "abc")
    found = manager.environment(made.name)
    assert (SLEEP.argv, "/d", "1") == (manager.argv(made.name), found["HF_HOME"], found["VLLM_X"])
    made.restore()
    manager.until_runs(made, "")
    assert ("/bin/sleep", "599") == manager.argv(made.name)


@pytest.mark.slow
def test_a_drop_in_that_the_manager_does_not_read(manager, unit, tmp_path):
    """Another folder than the manager's: one line, nothing is restarted, and nothing is left."""
    made = unit("ExecStart=/bin/sleep 600")
    lost = Systemd(made.name, tmp_path, manager.systemctl)
    before = manager.invocation(made.name)
    with pytest.raises(EngineError, match="does not take"):
        lost.start(SLEEP, "abc")
    assert (before, False) == (manager.invocation(made.name), lost.drop_in.exists())


def test_a_unit_that_is_not_there(manager):
    """One line, with where to look; nothing is written for it."""
    lost = Systemd("nobody", manager.units, manager.systemctl)
    for ask in (lost.running, lambda: lost.start(SLEEP, "abc"), lost.processes):
        with pytest.raises(EngineError, match=r"^there is no unit nobody\.service$") as caught:
            ask()
        assert "list-unit-files" in caught.value.hint
    assert not lost.drop_in.parent.exists()


def test_a_unit_without_a_command(unit):
    """It says what to look at."""
    made = unit("Type=oneshot", "ExecStop=/bin/true", start=False)
    with pytest.raises(UsageError, match="has no ExecStart="):
        made.command()
    broken = unit("ExecStart=/bin/sleep 'a", start=False)
    with pytest.raises(UsageError, match="cannot be read"):
        broken.command()


def test_a_manager_that_refuses_or_is_silent(tmp_path, monkeypatch):
    """No right to restart, no answer, no systemctl: one line with the next command."""
    tool = tmp_path / "systemctl"
    tool.write_text("#!/bin/sh\necho 'Failed to restart: Access denied' >&2\nexit 4\n")
    tool.chmod(0o755)
    with pytest.raises(EngineError, match="Access denied") as caught:
        Systemd("vllm", tmp_path, (str(tool),)).restore()
    assert "systemctl status vllm.service" == caught.value.hint
    monkeypatch.setattr(systemd, "_ASK_S", 0.1)
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    for argv, why in (((str(tool),), r"nothing within 0\.1 s"), (("/no/systemctl",), "No such file")):
        with pytest.raises(EngineError, match=rf"show vllm\.service does not answer: {why}"):
            Systemd("vllm", tmp_path, argv).running()
