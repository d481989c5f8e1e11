"""Proof that vLLM reads the files that were written: its own loader is asked, in its own process.

A name that is a letter off, a folder that a container does not see, a variable that was never exported: in each case
the server starts and says nothing to anybody who is not reading its log. Here vLLM's loader opens the folder and hands
back what it read, which must be what was written; and for each batch size of a graph, what its layers will then take.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import EngineError
from vllm_advisor.vllm import oracle
from vllm_tuner.vllm_configs.asking import FOLDER, ask
from vllm_tuner.vllm_configs.table import GRAPH_SIZES


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_advisor.vllm.oracle_device import StandIn
    from vllm_tuner.vllm_configs.defaults import Config
    from vllm_tuner.vllm_configs.shapes import Shape
    from vllm_tuner.vllm_configs.table import Table

BEYOND = (513, 1024, 2048, 8192, 16384)  # prompts: larger than any graph


class Proof(NamedTuple):
    """What vLLM's loader did for one shape. `path`: the file that it opened, "" for none.

    `wrong`: each line says how that differs from what was written; empty: it is proved. `untuned`: batch sizes that are
    no key of the table and get something else than vLLM's default, by vLLM's own account.
    """

    name: str
    path: str
    wrong: tuple[str, ...]
    untuned: tuple[int, ...]

    @property
    def proved(self) -> bool:
        """Whether vLLM read exactly what was written."""
        return not self.wrong


class Heard(NamedTuple):
    """Which vLLM answered, for which device, and what it said of each shape."""

    vllm: str
    device: str
    proofs: tuple[Proof, ...]


def prove(
    python: Path, device: StandIn | None, folder: Path, written: Sequence[tuple[Shape, Table | None]],
    *, allowed_s: float = 300.0,
) -> Heard:  # fmt: skip
    """Have vLLM's loader read the folder for these shapes. No table: nothing was written, so nothing should be read.

    `device`: one that vLLM is made to believe in, needed on a machine without a GPU; its `name` is the driver's. None:
    the machine's own. Raises EngineError where vLLM cannot be asked.
    """
    batches = [*GRAPH_SIZES, *BEYOND]
    question = {
        "oracle": str(oracle.CHILD.parent),
        "device": device._asdict() if device else None,
        "shapes": [shape._asdict() | {"batches": batches} for shape, _ in written],
    }
    said = ask(python, "loader.py", question, {FOLDER: str(folder.absolute())}, allowed_s=allowed_s)
    try:
        proofs = tuple(
            judge(answer, folder, table, batches) for (_, table), answer in zip(written, said["shapes"], strict=True)
        )
        return Heard(str(said["vllm"]), str(said["device"]), proofs)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(f"vLLM's process gave an answer that cannot be read ({error!r})") from error


def judge(answer: dict[str, Any], folder: Path, table: Table | None, batches: Sequence[int]) -> Proof:
    """One answer of the child against what was written."""
    path = str(answer["path"])
    read = answer["table"]
    if table is None:
        unknown = [f"vLLM reads {path}, which is not known here"] if _lies_in(path, folder) else []
        return Proof(answer["name"], path, tuple(unknown), ())
    if not _lies_in(path, folder):
        return Proof(answer["name"], path, (_not_read(answer["name"], path, folder),), ())
    wrong = tuple(_differences({int(k): v for k, v in read.items()} if read else {}, table))
    wrong += tuple(_chosen(answer["chosen"], table, batches))
    keys = {batch for batch, _ in table.entries}
    rows = zip(batches, answer["chosen"], answer["default"], strict=True)
    return Proof(answer["name"], path, wrong, tuple(b for b, c, d in rows if c != d and b not in keys))


def _lies_in(path: str, folder: Path) -> bool:
    return bool(path) and Path(path).parent.resolve() == folder.resolve()


def _not_read(name: str, path: str, folder: Path) -> str:
    instead = f"it read {path}" if path else "it found none"
    here = sorted(p.name for p in folder.glob("E=*.json")) if folder.is_dir() else []
    return f"vLLM looks for {name}, and {instead}; the folder holds {', '.join(here[:3]) or 'no such file'}"


def _differences(read: dict[int, Config], table: Table) -> list[str]:
    wrote = dict(table.entries)
    return [
        f"batch size {batch}: vLLM read {read.get(batch)}, {wrote.get(batch)} was written"
        for batch in sorted(read.keys() | wrote.keys())
        if read.get(batch) != wrote.get(batch)
    ]


def _chosen(chosen: Sequence[Config], table: Table, batches: Sequence[int]) -> list[str]:
    return [
        f"batch size {batch}: vLLM takes {config}, the table's nearest is {table.nearest(batch)}"
        for batch, config in zip(batches, chosen, strict=True)
        if config != table.nearest(batch)
    ]
