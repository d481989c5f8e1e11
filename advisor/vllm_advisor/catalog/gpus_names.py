"""When two spellings mean one GPU: `NVIDIA H100 80GB HBM3`, `h100-80` and `H100_80GB` have the same key.

A key is the sorted letter and digit runs of the name, without the words that tell no device from another. Sorting
makes `A100 80GB PCIe` and `A100-PCIE-80GB` equal, and no rule about word order is needed.
"""

from __future__ import annotations

import re
from functools import lru_cache


_SILENT = frozenset(
    (
        "nvidia", "amd", "corporation", "inc", "geforce", "instinct", "radeon", "tesla", "rtx",
        "rx", "gtx", "gpu", "graphics", "generation", "edition", "blackwell", "oam", "ac", "vf", "azure",
        "standard",
    )
)  # fmt: skip
_WORD = re.compile(r"[a-z0-9]+")
_SIZE = re.compile(r"([0-9]{1,4})gi?b?")
_MEMORY_KIND = re.compile(r"hbm[0-9]e?|gddr[0-9]x?")
_RUN = re.compile(r"sxm[0-9]?|[a-z]+|[0-9]+")
_NUMBER = re.compile(r"[0-9]+")

# Each pattern names hardware that vLLM may know but this product does not judge.
_OTHERS = (
    ("Intel", re.compile(r"intel|\barc\b|gaudi|\bhpu\b|\bxpu\b|\bb[56]0\b|ponte vecchio|max 1[15]50")),
    ("Google TPU", re.compile(r"\btpu|\bv[2-7][ep]?-[0-9]+\b|trillium|ironwood")),
    ("Apple", re.compile(r"apple|\bm[1-5]( (pro|max|ultra))?$|metal\b")),
    ("AWS Neuron", re.compile(r"trainium|inferentia|\btrn[12]|\binf[12]")),
    ("Huawei Ascend", re.compile(r"ascend|\b910[abc]\b")),
    ("Moore Threads or other", re.compile(r"moore threads|\bmtt\b|cambricon|\bmlu|qualcomm|hygon|kunlun|metax")),
)


@lru_cache(maxsize=512)
def key(name: str) -> tuple[str, ...]:
    """The sorted runs that name a device, `()` where nothing does: `NVIDIA H100 80GB HBM3` → `("100", "80", "h")`."""
    runs: list[str] = []
    for word in _WORD.findall(name.lower()):
        if _MEMORY_KIND.fullmatch(word):
            continue
        size = _SIZE.fullmatch(word)
        runs += [size[1]] if size else _RUN.findall(word)
    return tuple(sorted("sxm" if run.startswith("sxm") else run for run in runs if run not in _SILENT))


def rarest(name_key: tuple[str, ...]) -> str:
    """The run that filters best: the longest number, else the longest word."""
    numbers = [run for run in name_key if _NUMBER.fullmatch(run)]
    return max(numbers or name_key, key=len)


def other_vendor(name: str) -> str | None:
    """The maker, where the name is of hardware that is not supported here."""
    lowered = name.lower()
    return next((vendor for vendor, pattern in _OTHERS if pattern.search(lowered)), None)


def nearest(name: str, names: dict[str, str], count: int = 3) -> list[str]:
    """The `count` closest device names; `names` maps every spelling to its device.

    Shared runs weigh more than similar letters: a wrong word beside the right number is the usual mistake.
    """
    from difflib import SequenceMatcher  # noqa: PLC0415  only a failed lookup pays for it

    runs = set(key(name))
    matcher = SequenceMatcher(b=name.lower()[:80], autojunk=False)
    scores: dict[str, float] = {}
    for spelling, device in names.items():
        matcher.set_seq1(spelling.lower())
        shared = len(runs.intersection(key(spelling))) / max(1, len(runs.union(key(spelling))))
        scores[device] = max(scores.get(device, 0.0), shared + matcher.ratio())
    return sorted(scores, key=lambda device: (-scores[device], device))[:count]
