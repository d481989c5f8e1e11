"""Builders of machines for tests, ours and other people's: catalog devices with a host, and a machine as a folder.

Nothing here is read from hardware, and nothing outside of tests imports it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vllm_advisor.catalog import gpus
from vllm_advisor.hardware import Gpu, Host, Node
from vllm_advisor.probe.reading import Reading
from vllm_advisor.units import GIB


if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


HOST = Host("Example CPU", cores=64, memory_bytes=1024 * GIB, shm_bytes=512 * GIB, numa_nodes=2, cpu_flags=("avx2",))

# A config.json of the smallest model that is still one.
TINY_LLAMA: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def gpu(name: str = "H100", **changes: Any) -> Gpu:
    """A catalog device, by any spelling, with fields changed."""
    return replace(gpus.find(name), **changes)


def probed(machine: str = "8xH100", **changes: Any) -> Node:
    """A catalog machine as if a probe had read it: nobody uses its devices, it has a host and a driver."""
    node = gpus.node(machine)
    free = tuple(replace(gpu, free_bytes=gpu.memory_bytes) for gpu in node.gpus)
    read = replace(node, gpus=free, host=HOST, driver="580.95", runtime="CUDA 13.0", origin="probe")
    return replace(read, **changes)


def reading(machine: str = "2xL40S", *warnings: str) -> Reading:
    """What a vendor's probe returns for a catalog machine."""
    node = probed(machine)
    return Reading(node.gpus, node.topology, node.driver, node.runtime, warnings)


def write_tree(root: Path, files: Mapping[str, str]) -> Path:
    """Files below a folder, by path: a machine for `probe.host`, whose functions take the folder as root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def machine_files(*, flags: str = "fpu avx2 avx512f", nodes: int = 2, node_kib: int = 64 << 20) -> dict[str, str]:
    """/proc and /sys of an x86 machine: two cores of two threads a NUMA node, half of each node's memory free.

    CPUs are numbered as Linux does: first one thread of every core, then the siblings.
    """
    cores = 2 * nodes
    node_of = {cpu: cpu % cores // 2 for cpu in range(2 * cores)}
    files = {
        "proc/cpuinfo": f"processor\t: 0\nmodel name\t: Example  CPU @ 2.0GHz\nflags\t\t: {flags}\n\nprocessor\t: 1\n",
        "proc/meminfo": f"MemTotal: {nodes * node_kib} kB\nMemAvailable: {nodes * node_kib // 2} kB\n",
        "proc/self/status": f"Name:\tx\nCpus_allowed_list:\t0-{2 * cores - 1}\nMems_allowed_list:\t0-{nodes - 1}\n",
        "proc/self/cgroup": "0::/\n",
        "sys/devices/system/cpu/online": f"0-{2 * cores - 1}\n",
        "sys/devices/system/node/has_memory": f"0-{nodes - 1}\n",
    }
    for cpu in node_of:
        siblings = f"{cpu % cores},{cpu % cores + cores}\n"
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = siblings
    for node in range(nodes):
        folder = f"sys/devices/system/node/node{node}"
        files[f"{folder}/cpulist"] = ",".join(str(cpu) for cpu, home in node_of.items() if home == node)
        files[f"{folder}/meminfo"] = _meminfo(node, node_kib)
    return files


def _meminfo(node: int, total_kib: int) -> str:
    """A quarter free, a quarter file cache, and active and inactive of other kinds that must not count."""
    lines = {
        "MemTotal": total_kib,
        "MemFree": total_kib // 4,
        "Active": total_kib // 2,
        "Active(file)": total_kib // 8,
        "Inactive(file)": total_kib // 16,
        "SReclaimable": total_kib // 16,
    }
    return "".join(f"Node {node} {key}:  {value} kB\n" for key, value in lines.items())


def install_vllm(folder: Path) -> Path:
    """Write a stand-in for `vllm` into a folder, to be put in front of the PATH; the folder.

    What it does is told by FAKE: ready (the default), dies, hangs, waits (not healthy until the file FAKE_GO is there),
    stubborn, brief, suicidal. FAKE_LOG is a log to print at first, FAKE_METRICS what /metrics answers. It starts a
    process of its own, as an engine does, that only its group betrays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "vllm"
    script.write_text(f"#!{sys.executable}\n{_VLLM}", encoding="utf-8")
    script.chmod(0o755)
    return folder


def install_tuner(folder: Path) -> Path:
    """Write a stand-in for `tuner` into a folder, to be put in front of the PATH; the folder.

    It prints the events of the file FAKE_EVENTS; where FAKE_LINES is set, only so many of them, and then it waits for
    SIGINT. FAKE_TUNER=fails: one line of error and one of hint instead.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "tuner"
    script.write_text(f"#!{sys.executable}\n{_TUNER}", encoding="utf-8")
    script.chmod(0o755)
    return folder


_TUNER = """\
import json, os, signal, sys
from pathlib import Path

print("note: argv", json.dumps(sys.argv[1:]), file=sys.stderr, flush=True)
if os.environ.get("FAKE_TUNER") == "fails":
    print("error: there is no vllm on the PATH, and a search needs a real one", file=sys.stderr)
    sys.exit("hint: --vllm-python ~/vllm/bin/python")
signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
lines = Path(os.environ["FAKE_EVENTS"]).read_text().splitlines()
most = int(os.environ.get("FAKE_LINES", "0"))
for line in lines[: most or None]:
    print(line, flush=True)
while most:
    signal.pause()
"""

_VLLM = """\
import json, os, signal, subprocess, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

mode = os.environ.get("FAKE", "ready")
print("argv", json.dumps(sys.argv[1:]), flush=True)
print("cwd", os.getcwd(), "safe", os.environ.get("PYTHONSAFEPATH"), flush=True)
ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " if mode == "stubborn" else ""
worker = "import signal; " + ignore + "signal.pause()"
subprocess.Popen([sys.executable, "-c", worker])
if "FAKE_LOG" in os.environ:
    print(Path(os.environ["FAKE_LOG"]).read_text(), end="", flush=True)
if mode == "dies":
    if "FAKE_LOG" not in os.environ:
        print("(EngineCore pid=7) ERROR 11-29 [core.py:1510] ValueError: no room for hf_abcdefghij1234", flush=True)
    sys.exit("RuntimeError: Engine core initialization failed. See root cause above.")
if mode == "hangs":
    signal.pause()
if mode == "stubborn":
    signal.signal(signal.SIGTERM, lambda *_: Path(os.environ["FIFO"]).write_text("ignored"))


def end():
    os.kill(os.getpid(), signal.SIGKILL) if mode == "suicidal" else os._exit(0)


def told(path):
    if path == "/metrics" and "FAKE_METRICS" in os.environ:
        return Path(os.environ["FAKE_METRICS"]).read_text()
    if path == "/version":
        return json.dumps({"version": "0.33.0"})
    return json.dumps({"data": [{"id": "served", "root": "served", "max_model_len": 1024}]}) if "models" in path else ""


class Handler(BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self):
        Handler.asked += 1
        well = Path(os.environ["FAKE_GO"]).exists() if mode == "waits" else Handler.asked > 1
        self.send_response(200 if well else 503)
        self.end_headers()
        self.wfile.write(told(self.path).encode())
        self.wfile.flush()
        if mode in ("suicidal", "brief") and Handler.asked > 1:
            threading.Timer(0.5, end).start()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        argv = sys.argv
        named = argv[argv.index("--served-model-name") + 1] if "--served-model-name" in argv else "served"
        self.send_response(200 if body["model"] in (named, os.environ.get("FAKE_NAME")) else 404)
        self.end_headers()
        text = body["prompt"] + "!" * body["max_tokens"] if "FAKE_NAME" not in os.environ else " Paris."
        self.wfile.write(json.dumps({"choices": [{"text": text}]}).encode())

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""
