"""Builders of machines for tests, ours and other people's: catalog devices with a host, and a machine as a folder.

Nothing here is read from hardware, and nothing outside of tests imports it.
"""

from __future__ import annotations

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
