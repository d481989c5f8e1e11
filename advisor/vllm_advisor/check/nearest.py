"""The name that somebody most likely meant."""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Iterable

# What people write for it: short forms of our own habit, and the options of other servers.
MEANT = {
    "--tp": "--tensor-parallel-size",
    "--tp-size": "--tensor-parallel-size",
    "--num-gpus": "--tensor-parallel-size",
    "--pp": "--pipeline-parallel-size",
    "--pp-size": "--pipeline-parallel-size",
    "--dp": "--data-parallel-size",
    "--dp-size": "--data-parallel-size",
    "--ep": "--enable-expert-parallel",
    "--expert-parallel": "--enable-expert-parallel",
    "--context-length": "--max-model-len",
    "--ctx-size": "--max-model-len",
    "--max-seq-len": "--max-model-len",
    "--max-len": "--max-model-len",
    "--mem-fraction-static": "--gpu-memory-utilization",
    "--gpu-memory": "--gpu-memory-utilization",
    "--gpu-mem-util": "--gpu-memory-utilization",
    "--max-running-requests": "--max-num-seqs",
    "--max-batch-size": "--max-num-seqs",
    "--chunked-prefill-size": "--max-num-batched-tokens",
    "--kv-dtype": "--kv-cache-dtype",
    "--kv-cache-type": "--kv-cache-dtype",
    "--eager": "--enforce-eager",
}


def nearest(name: str, known: Iterable[str], cutoff: float = 0.75) -> str:
    """The known name that a mistyped one means, "" where none is near.

    `cutoff`: the share of letters in common (difflib), 0.75 for two slips or so in a name of ordinary length.
    """
    import difflib  # noqa: PLC0415

    names = list(known)
    meant = MEANT.get(name, "")
    if meant in names:
        return meant
    found = difflib.get_close_matches(name[:80], names, n=1, cutoff=cutoff)
    return found[0] if found else ""
