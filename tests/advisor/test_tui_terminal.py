"""The wizard in a real terminal (tmux): what a person types, what the screen shows, and what is left afterwards."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest


pytest.importorskip("textual")

from vllm_advisor.tui import keep


TMUX = shutil.which("tmux")
MAKE = Path(__file__).parents[2] / "benchmarks/make_test_models.py"
PYTHON = os.environ.get("ADVISOR_VLLM_PYTHON", "")
MODELS = os.environ.get("ADVISOR_TEST_MODELS", "")
pytestmark = pytest.mark.skipif(not TMUX, reason="no tmux")


class Terminal:
    """A tmux server of its own with one shell: keys in, text out."""

    def __init__(self, folder, width=100, height=30):
        self._socket = str(folder / "tmux")
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "HF_HOME", "HF_HUB_OFFLINE") if name in os.environ}
        environment = kept | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "ADVISOR_WIZARD_STATE": str(folder / "state.json"),
            "ADVISOR_DATABASE_URL": str(folder / "advisor.db"),
            "LC_ALL": "C.UTF-8", "TERM": "tmux-256color", "PS1": "ready> ", "TMPDIR": str(folder), "NO_COLOR": "1",
        }  # fmt: skip
        shell = shlex.join(["env", "-i", *(f"{k}={v}" for k, v in environment.items()), "sh"])
        self("-f", "/dev/null", "-u", "new-session", "-d", "-x", str(width), "-y", str(height), shell)
        self.until("ready>")

    def __call__(self, *words):
        done = subprocess.run([TMUX, "-S", self._socket, *words], capture_output=True, text=True, check=True)
        return done.stdout

    def type(self, text):
        """A line for the shell or a field."""
        self("send-keys", "-l", text)
        self("send-keys", "Enter")

    def reset(self):
        """What a person types blindly when a program left the terminal raw, where Enter is no line's end."""
        self("send-keys", "-l", "reset")
        self("send-keys", "C-j")
        self.until(r"\A\s*ready>\s*\Z")

    def press(self, *keys):
        self("send-keys", *keys)

    def screen(self):
        return self("capture-pane", "-p")

    def until(self, *words, seconds=60.0):
        """Until the screen shows all of them; what it shows then."""
        end = time.monotonic() + seconds
        while not all(re.search(word, shown := self.screen()) for word in words):
            assert time.monotonic() < end, f"{words} never came:\n{shown}"
            threading.Event().wait(0.1)
        return shown

    def wizard(self, *words):
        """Start it from the shell."""
        self("clear-history")
        self.type("clear; " + shlex.join([sys.executable, "-m", "vllm_advisor", "wizard", *words]))

    def pid(self):
        """Of the wizard."""
        return int(self.ask("pgrep -n -f 'vllm_advisor wizard' -P " + self("display", "-p", "#{pane_pid}").strip()))

    def ask(self, command):
        return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout.strip()

    def modes(self):
        """Whether another screen, the mouse, or a hidden cursor is left over, and the line's settings."""
        shown = self("display", "-p", "#{alternate_on} #{mouse_any_flag} #{cursor_flag}").strip()
        return shown, self.ask(f"stty -g < {self('display', '-p', '#{pane_tty}').strip()}")


@pytest.fixture
def terminal(tmp_path):
    """A terminal; whatever runs in it ends with the test."""
    made = Terminal(tmp_path)
    yield made
    made("kill-server")


@pytest.mark.slow
def test_from_the_first_step_to_the_plans_and_out_again(terminal, tmp_path):
    """Keys lead through the steps; Ctrl+Q ends it, the terminal is as it was, and the command is printed."""
    before = terminal.modes()
    terminal.wizard("Qwen/Qwen3-8B", "--gpu", "2xL40S", "--offline")
    terminal.until("▶1 hardware", "L40S")
    inside = terminal.modes()
    terminal.press("C-n")
    terminal.until("▶2 model", "Qwen3-8B")
    terminal.press("C-n", "C-n")
    terminal.until("▶4 plans", "TP2|TP1")
    terminal.press("F3")
    terminal.until("The decision matrix: NVIDIA L40S")
    terminal.press("Escape")
    terminal.until("▶4 plans")
    terminal.press("F1")
    terminal.until("Keys of this screen")
    terminal.press("q")
    terminal.press("C-q")
    shown = terminal.until("The same answer without the wizard:", r"advisor recommend Qwen/Qwen3-8B .*2xL40S", "ready>")

    assert before != inside
    assert before == terminal.modes()
    assert "hardware" not in shown.splitlines()[0]
    assert "plans" == keep.load(tmp_path / "state.json").step


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_asked_to_end_it_gives_the_terminal_back(terminal, number):
    """By a signal, as when a system shuts down or a connection breaks."""
    before = terminal.modes()
    terminal.wizard("--gpu", "2xL40S", "--offline")
    terminal.until("▶1 hardware", "L40S")
    os.kill(terminal.pid(), number)
    terminal.until("ready>", seconds=30)
    assert before == terminal.modes()


@pytest.mark.slow
def test_after_kill_9_it_goes_on_where_it_was(terminal):
    """Nothing can be cleaned up then; the state lies on disk, and --resume opens the same step."""
    terminal.wizard("Qwen/Qwen3-8B", "--gpu", "2xL40S", "--offline")
    terminal.until("▶1 hardware", "L40S")
    terminal.press("C-n", "C-n")
    terminal.until("▶3 workload")
    os.kill(terminal.pid(), signal.SIGKILL)
    terminal.until("ready>")
    terminal.reset()
    terminal.wizard("--resume")
    terminal.until("▶3 workload")
    terminal.press("C-n")
    terminal.until("▶4 plans", "TP2|TP1")
    terminal.press("C-q")
    terminal.until(r"advisor recommend Qwen/Qwen3-8B .*2xL40S", "ready>")


BROKEN = """
from vllm_advisor.cli.wizard import app
from vllm_advisor.tui import app as tui

class Wizard(tui.Wizard):
    CSS_PATH = tui.__file__.replace("app.py", "wizard.tcss")
    BINDINGS = [("f9", "fail")]
    action_fail = lambda self: 1 / 0

tui.Wizard = Wizard
app(["--gpu", "2xL40S", "--offline"])
"""


@pytest.mark.slow
def test_a_crash_leaves_one_line_and_a_clean_terminal(terminal, tmp_path):
    """No traceback on the screen; the report lies where the line says; exit code 1."""
    (tmp_path / "broken.py").write_text(BROKEN, encoding="utf-8")
    before = terminal.modes()
    terminal.type(f"clear; {sys.executable} {tmp_path / 'broken.py'}; echo left=$?")
    terminal.until("▶1 hardware", "L40S")
    terminal.press("F9")
    shown = terminal.until("left=1")
    (report,) = tmp_path.glob("wizard-crash-*.txt")

    assert before == terminal.modes()
    assert "ZeroDivisionError" in shown
    assert report.name in shown.replace("\n", "")
    assert "Traceback" not in shown
    assert "ZeroDivisionError: division by zero" in report.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_terminal_without_utf8_gets_ascii(tmp_path):
    """As on an old console: the rail in plain signs."""
    terminal = Terminal(tmp_path, 80, 24)
    try:
        terminal.type("export LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0")
        terminal.wizard("--gpu", "2xL40S", "--offline")
        shown = terminal.until(">1 hardware", "L40S")
    finally:
        terminal("kill-server")
    assert shown.isascii()


# -- with a real vLLM for the CPU


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """SmolLM2's folder, made by the Python that has vLLM."""
    if not PYTHON:
        pytest.skip("ADVISOR_VLLM_PYTHON names no Python with vLLM")
    folder = (Path(MODELS) if MODELS else tmp_path_factory.mktemp("models")).absolute() / "smollm2"
    subprocess.run([PYTHON, MAKE, "smollm2", folder], check=True, stdout=subprocess.DEVNULL)
    return folder


def launched(terminal, model):
    """From the first step to a start; the process of the server."""
    words = ["--gpu", "cpu", "--vllm", "0.32.0", "--vllm-python", PYTHON, "--offline"]
    terminal.wizard(str(model), *words)
    terminal.until("▶1 hardware")
    terminal.press("C-n", "C-n", "C-n")
    terminal.until("▶4 plans", "TP1")
    terminal.press("C-n")
    terminal.until("▶5 command", "vllm serve")
    terminal.press("C-n")
    terminal.until("▶6 launch", "Start")
    terminal.press("s")
    return int(re.search(r"process (\d+)", terminal.until(r"process \d+"))[1])


def first_words(terminal):
    """Wait until it serves, ask for a completion, and stop it on the way out."""
    terminal.until("ready.*/v1", seconds=420)  # less than a test may take: it shows the screen then
    terminal.until("Prompt +The capital of France is")
    terminal.press("Enter")
    shown = terminal.until(r"The capital of France is[^\n]*\w[^\n]*\n(.*\n)*.*\([\d.]+ s\)", seconds=120)
    terminal.press("C-q")
    terminal.until("What becomes of it")
    terminal.press("s")
    terminal.until("The same answer without the wizard:", "ready>", seconds=90)
    return shown


def members(group):
    """Processes of a group that are not dead yet, whoever has to bury them."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z" and int(fields[2]) == group:
            found.append(int(stat.parent.name))
    return found


@pytest.fixture
def servers():
    """Groups of servers that a test started: none outlives it, however it ends."""
    started = []
    yield started
    for group in started:
        if members(group):
            os.killpg(group, signal.SIGKILL)


@pytest.mark.vllm
def test_from_the_start_to_a_running_server_and_its_first_completion(terminal, smollm2, servers):
    """Seven steps of a person who types no flag: SmolLM2 answers, the server is stopped, nothing is left."""
    before = terminal.modes()
    server = launched(terminal, smollm2)
    servers.append(server)
    shown = first_words(terminal)

    assert "Paris" in shown
    assert [] == members(server)
    assert before == terminal.modes()


@pytest.mark.vllm
def test_killed_mid_way_it_takes_its_server_back(terminal, smollm2, servers):
    """kill -9 of the wizard while vLLM starts: --resume finds that server, shows it, and its first completion."""
    server = launched(terminal, smollm2)
    servers.append(server)
    os.kill(terminal.pid(), signal.SIGKILL)
    terminal.until("ready>")
    assert members(server)
    terminal.reset()
    terminal.wizard("--resume")
    terminal.until("From an earlier wizard", f"process {server}")
    terminal.press("a")
    terminal.until("▶6 launch")
    shown = first_words(terminal)

    assert "Paris" in shown
    assert [] == members(server)
