"""The names of vLLM's tuned files, written as vLLM writes them and read back.

A file is found by its name alone, so a name is a promise about everything in it: how many experts a rank holds, how
wide they are on that rank, the device as its driver calls it, and the kind of arithmetic.
"""

from __future__ import annotations

import re
from typing import NamedTuple


# What vLLM puts behind `dtype=` for experts (fused_moe/config.py:42-73); None: no such part in the name. `float32` is
# that of a model that runs in float32. Shipped files with `bf16`, `float8` or `int8_w8a8` are found by nothing.
DTYPES = (None, "fp8_w8a8", "fp8_w8a16", "int8_w8a16", "int4_w4a16", "float32")
_H200 = "NVIDIA_H200"
_PARTS = re.compile(
    r"E=(?P<E>\d+),N=(?P<N>\d+),device_name=(?P<device>[^,]+)(?:,dtype=(?P<dtype>[^,]+))?"
    r"(?:,block_shape=\[(?P<n>\d+),(?P<k>\d+)\])?\.json"
)
# Kind of file → the name's form. Kinds other than experts are only recognised, so that a user is told who reads them.
_LORA = r"(?:SHRINK|EXPAND_(?:TRUE|FALSE)|FUSED_MOE_LORA_W(?:13|2)_(?:SHRINK|EXPAND))"
OTHERS = (
    ("linear", re.compile(r"N=\d+,K=\d+,device_name=[^,]+,dtype=[^,]+(?:,block_shape=\[\d+,\d+\])?\.json")),
    ("ssm", re.compile(r"headdim=\d+,dstate=\d+,device_name=[^,]+,cache_dtype=[^,]+\.json")),
    ("lora", re.compile(rf".+_{_LORA}\.json")),
    ("flydsl", re.compile(r"E=\d+,N=\d+,device_name=[^,]+,dtype=[^,]+,backend=flydsl\.json")),
)


class ExpertsFile(NamedTuple):
    """What the name of an experts' file says. `experts` are those of one rank, `width` is its share of one's size.

    `device` as it stands in the name. `block` is (n, k) of a block scale, None without.
    """

    experts: int
    width: int
    device: str
    dtype: str | None = None
    block: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """The file's name (fused_moe/fused_moe.py:1095-1108 of 0.33.0); a block with a side of 0 counts as none."""
        dtype = f",dtype={self.dtype}" if self.dtype else ""
        block = f",block_shape=[{self.block[0]},{self.block[1]}]" if self.block and all(self.block) else ""
        return f"E={self.experts},N={self.width},device_name={self.device}{dtype}{block}.json"


def device_part(device: str, release: tuple[int, int, int]) -> str:
    """A device as its driver calls it → as it stands in the name of an experts' file.

    Before 0.26.0 only blanks became underscores, since then runs of blanks and slashes do
    (utils/platform_utils.py:69-75); every H200 is called NVIDIA_H200.
    """
    part = linear_device_part(device, release)
    return _H200 if "H200" in part.split("_") else part


def linear_device_part(device: str, release: tuple[int, int, int]) -> str:
    """The same for a linear layer's file, where an H200 keeps its own name (quantization/utils/fp8_utils.py:936)."""
    return device.replace(" ", "_") if release < (0, 26, 0) else re.sub(r"[\s/]+", "_", device)


def parsed(name: str) -> ExpertsFile | None:
    """What an experts' file name says; None for a name of another form."""
    found = _PARTS.fullmatch(name)
    if found is None:
        return None
    block = (int(found["n"]), int(found["k"])) if found["n"] else None
    return ExpertsFile(int(found["E"]), int(found["N"]), found["device"], found["dtype"], block)


def kind(name: str) -> str:
    """experts, linear, ssm, lora, flydsl, or "" for a name that no release of vLLM looks for."""
    if any(form.fullmatch(name) for _, form in OTHERS[3:]):
        return "flydsl"
    if parsed(name):
        return "experts"
    return next((label for label, form in OTHERS if form.fullmatch(name)), "")
