"""The catalog as a page for people: `docs/gpus.md` is this text, and a test keeps it so.

python -m vllm_advisor.catalog.gpus_table > docs/gpus.md
"""

from __future__ import annotations

import sys
import tomllib
from typing import TYPE_CHECKING

from vllm_advisor.catalog import gpus_file


if TYPE_CHECKING:
    from vllm_advisor.catalog.gpus_file import Entry


_COLUMNS = ("Device", "Arch", "Memory GiB", "GB/s", "BF16", "FP8", "FP4", "Peer GB/s", "PCIe GB/s", "Most", "Sources")

_INTRODUCTION = """\
# The GPU catalog

What the planner knows of a device that it cannot probe: `advisor/vllm_advisor/catalog/gpus.toml`, as a table. This
page is generated (`python -m vllm_advisor.catalog.gpus_table > docs/gpus.md`); a test keeps it equal.

- **`~` marks a value that is not verified**: from general knowledge, or an estimate by the rules in the head of
  `gpus.toml`. The mark stays with the value in the program's answers.
- **Memory** is what CUDA or HIP report as total, which is what vLLM multiplies by its utilization. It is less than
  NVML's total (an H100 has 81,559 MiB in NVML, 79.2 GiB in CUDA), and less than what is on the box.
- **Rates** are dense, with FP32 accumulation, in 10^12 operations a second; `-`: no such unit. Devices with no BF16
  unit (sm75 and older) show their FP16 rate. sm70 and older, and gfx908, stand here so that the answer can be that this
  vLLM does not support them.
- **Peer** is NVLink or xGMI one way to one peer, as the maker's own baseboard has it. Optional bridges are not assumed.
  **PCIe** is one way. **Most** is the number of devices in one machine or one NVLink domain.
- A bare name has a default: `H100` and `H200` are the SXM ones, `A100` the 80 GB SXM one, `RTX PRO 6000` the server
  edition, `GH200` the 96 GB one, `V100` the 32 GB one. `RTX 6000` alone is ambiguous, and the lookup says so.
- Processors are assumed machines: a plan for one should come from a probe.
"""


def page() -> str:
    """The whole of docs/gpus.md."""
    return f"{_INTRODUCTION}\n{markdown_table()}\n## Sources\n\n{_sources()}"


def markdown_table() -> str:
    """One row a device, in catalog order; ends with a newline."""
    tables = [gpus_file.entry(index) for index in range(len(gpus_file.blocks()))]
    rows = [_COLUMNS, tuple("---" for _ in _COLUMNS), *(_row(table) for table in tables)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(table: Entry) -> tuple[str, ...]:
    link = f"{table['link']} {_cell(table, 'peer_gb_s')}" if "link" in table else "-"
    rates = [_cell(table, key) for key in ("bandwidth_gb_s", "tflops_bf16", "tflops_fp8", "tflops_fp4")]
    most = f"{gpus_file.number(table, 'max_per_node'):g}"
    return (
        str(table["name"]),
        _mark(table, "arch") + _arch(table),
        _mark(table, "memory_mib") + f"{(gpus_file.number(table, 'memory_mib') or 0) / 1024:.2f}",
        *rates,
        link,
        _cell(table, "pcie_gb_s"),
        most,
        _row_sources(table),
    )


def _arch(table: Entry) -> str:
    arch = table["arch"]
    return str(arch[0]) if isinstance(arch, list) else str(arch)


def _cell(table: Entry, key: str) -> str:
    value = gpus_file.number(table, key)
    return "-" if value is None else f"{_mark(table, key)}{value:g}"


def _mark(table: Entry, key: str) -> str:
    return "~" if gpus_file.is_unverified(table, key) else ""


def _row_sources(table: Entry) -> str:
    """The distinct source keys of a row, in the order of its lines."""
    sourced = [key for key, value in table.items() if isinstance(value, list) and key not in gpus_file.NAMES]
    return ", ".join(dict.fromkeys(gpus_file.source(table, key) for key in sourced))


def _sources() -> str:
    """The meaning of every source key; `D+T` means D, and T agrees."""
    listed = tomllib.loads(gpus_file.PATH.read_text(encoding="utf-8"))["sources"]
    rows = "".join(f"- `{key}`: {text}\n" for key, text in listed.items())
    return rows + "\n`D+T` is a value of D with which T agrees.\n"


if __name__ == "__main__":
    sys.stdout.write(page())
