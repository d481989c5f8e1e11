"""Which of the recipes' hardware profiles a machine is: by the words of the device's name, then by their number."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.hardware import Vendor
from vllm_advisor.units import GB


if TYPE_CHECKING:
    from vllm_advisor.hardware import Node
    from vllm_advisor.recipes.tree import Tree

# The words of hardware_overrides by architecture, as taxonomy.yaml of the clone sorts its profiles.
_GENERATIONS = {
    "sm80": "ampere", "sm86": "ampere", "sm89": "ada", "sm90": "hopper", "sm100": "blackwell", "sm103": "blackwell",
    "sm110": "blackwell", "sm120": "blackwell", "sm121": "blackwell",
}  # fmt: skip
_COUNTED = re.compile(r"_([0-9]+)x$")


class Profile(NamedTuple):
    """`id` as the recipes spell it (`h200`; "" for a device that they do not know), its kind, and its size."""

    id: str
    generation: str
    brand: str
    devices: int
    gigabytes: float

    @property
    def keys(self) -> tuple[str, ...]:
        """Under which a recipe may speak of this hardware, the most exact first."""
        return tuple(key for key in (self.id, self.generation, self.brand.lower(), "default") if key)


def profile(node: Node, taxonomy: Tree) -> Profile:
    """The profile of a machine; without a taxonomy the id is guessed from the device's name."""
    gpu = node.gpu
    known = taxonomy.at("hardware_profiles")
    name = _best(_words(gpu.name), known.names(), len(node.gpus)) if known else _guessed(gpu.name)
    generation = (
        "amd" if gpu.vendor is Vendor.AMD else _GENERATIONS.get(gpu.arch, "cpu" if gpu.vendor is Vendor.CPU else "")
    )
    brand = {Vendor.NVIDIA: "NVIDIA", Vendor.AMD: "AMD"}.get(gpu.vendor, "Intel")
    return Profile(
        name,
        known.text(name, "generation") or generation,
        known.text(name, "brand") or brand,
        len(node.gpus),
        gpu.memory_bytes / GB,
    )


def _words(name: str) -> list[str]:
    """`["rtx", "pro", "6000", "blackwell"]`, letters and digits of one word together."""
    return re.findall(r"[a-z0-9]+", name.lower())


def _best(words: list[str], ids: tuple[str, ...], count: int) -> str:
    """The id with the most words, all of which the device's name has; the one for so many devices, where there is."""
    fitting = []
    for name in ids:
        numbered = _COUNTED.search(name)
        own = _words(_COUNTED.sub("", name).replace("_", " "))
        if own and set(own) <= set(words):
            fitting.append((len(own), numbered is not None and int(numbered[1]) == count, numbered is None, name))
    return max(fitting)[3] if fitting else ""


def _guessed(name: str) -> str:
    """`h100` of `NVIDIA H100 SXM`: the word with letters and digits."""
    return next((w for w in _words(name) if re.fullmatch(r"[a-z]{1,2}[0-9]{2,4}[a-z]?", w)), "")
