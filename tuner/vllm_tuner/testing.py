"""What tests of a search need: a stand-in `vllm` with a speed, and facts about a tiny model. Shipped, as ours are.

The stand-in itself lies in `stand_in`, which starts fast because it imports nothing of ours.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_advisor.catalog import gpus, hub
from vllm_advisor.facts import Facts
from vllm_advisor.hardware import Node
from vllm_advisor.recommend import recommend
from vllm_advisor.testing import HOST, TINY_LLAMA, probed
from vllm_advisor.vllm import surface
from vllm_advisor.workload import Objective, Workload
from vllm_tuner.spaces import Space, space
from vllm_tuner.stand_in import KNEE, LIMIT, SHIFT, install


if TYPE_CHECKING:
    from pathlib import Path

# Heads of 64: those of the advisor's tiny model are too small for any backend.
MODEL = TINY_LLAMA | {"hidden_size": 256}
PROCESSOR = replace(HOST, cpu_flags=("avx2", "avx512f", "avx512_bf16"))
__all__ = ["KNEE", "LIMIT", "MODEL", "PROCESSOR", "SHIFT", "facts", "install", "small_space"]


def facts(folder: Path, *, concurrency: int = 8, machine: str = "", version: str = "0.33.0") -> Facts:
    """A tiny model, written to a folder, with a small load, on a machine of the catalog, "": a BF16 processor."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
    load = Workload("test", 32, 4, concurrency, context=256, objective=Objective.THROUGHPUT)
    node = probed(machine) if machine else Node((gpus.find("cpu"),), host=PROCESSOR, origin="probe")
    return Facts(node, hub.resolve(str(folder), offline=True), load, surface.load(version))


def small_space(found: Facts, plans: int = 2, breadth: int = 1) -> Space:
    """The space around what is recommended for them."""
    return space(found, list(enumerate(recommend(found, (), None, plans).plans, 1)), breadth)
