"""The page of `benchmarks/oracle.py`: what vLLM took, whether its kernels are ours, and what it did not say."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vllm_advisor.vllm.oracle_compare import Cell
    from vllm_advisor.vllm.oracle_verdict import Verdict

_LONGEST = 240
_FOLDER = re.compile(r"/(?:[\w.+-]+/)+")  # where this was run is nobody's business


class Row(NamedTuple):
    """One model on one device. `count` 0: no plan fits eight of them. `verdict` None: vLLM was not asked, or died."""

    model: str
    device: str
    count: int = 0
    verdict: Verdict | None = None
    cells: tuple[Cell, ...] = ()
    died: str = ""

    @property
    def without(self) -> tuple[Cell, ...]:
        """Cells of an accepted command on which vLLM gave no verdict."""
        return tuple(cell for cell in self.cells if cell.agrees is None)


def page(rows: Sequence[Row], version: str) -> str:
    """The whole page, Markdown."""
    return (
        "\n\n".join((_head(version), _sums(rows), _refused(rows), _differing(rows), _silent(rows), _each(rows))) + "\n"
    )


def _head(version: str) -> str:
    return f"""# What vLLM {version} itself says of our recommendations

Made by `benchmarks/oracle.py`, on a machine without a GPU: for every kind of checkpoint in the catalog (architecture ×
quantization method × scheme, a published config where there is one) the best plan on the smallest of 1, 2, 4 or 8
devices that fits is put to vLLM's own parser and configuration under a stand-in of the device; then vLLM's own model
class is built for that configuration, rank 0, with tensors of no device, and its layers are asked which backend they
got. A cell is one kind of layer: attention (full, sliding, latent, …), linear layers, experts. `ours` is what
`advisor recommend` names for it.

Limits. Nothing runs: a backend that fails when it is first called is not seen. AMD's library AITER counts as installed
(0.1.14 or newer) and is feigned; what it would say of a shape is taken as no. ROCm's own extension is not in the wheel
that is asked; FlashAttention 4, which is in it, counts as absent there. A configuration class that is code in a
repository is not run: a plain one holds its values, and vLLM itself would want --trust-remote-code, which we never add.

What follows is no test on unseen models: our tables, and what they are asked, were mended by these answers. Of 40
other models (`--others 40`) on A100, H100, B200, RTX PRO 6000 and MI300X, asked once, after that, 461 of 461 cells with
a verdict were the same, and 190 of 195 commands accepted: the five are one checkpoint whose collected config lacks
fields that vLLM wants (Nemotron-3-Super-120B-A12B-NVFP4)."""


def _sums(rows: Sequence[Row]) -> str:
    lines = ["device|models|no plan|asked|accepted|cells|same|differ|no verdict", "---|--:|--:|--:|--:|--:|--:|--:|--:"]
    devices = list(dict.fromkeys(row.device for row in rows))
    lines += [_sum(device, [row for row in rows if row.device == device]) for device in devices]
    lines.append(_sum("**all**", rows))
    return "## Sums\n\n" + _table(lines)


def _sum(name: str, rows: Sequence[Row]) -> str:
    asked = [row for row in rows if row.verdict or row.died]
    cells = [cell for row in asked for cell in row.cells]
    same, differ, silent = (sum(cell.agrees is value for cell in cells) for value in (True, False, None))
    accepted = sum(row.verdict is not None and row.verdict.accepted for row in asked)
    shares = (
        f"{accepted} ({_share(accepted, len(asked))})",
        str(len(cells)),
        f"{same} ({_share(same, same + differ)})",
        str(differ),
        f"{silent} ({_share(silent, len(cells))})",
    )
    return "|".join((name, str(len(rows)), str(sum(not row.count for row in rows)), str(len(asked)), *shares))


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _refused(rows: Iterable[Row]) -> str:
    """Commands that vLLM does not take, with its own words."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        if row.died:
            found["engine", row.died].append(f"{row.model} on {row.device}")
        elif row.verdict and not row.verdict.accepted:
            found[_stage(row.verdict)].append(f"{row.model} on {row.device}")
    lines = [f"{stage}|{_cut(text)}|{', '.join(names)}" for (stage, text), names in sorted(found.items())]
    return "## Refused by vLLM\n\n" + _table(["stage|vLLM's words|of", "---|---|---", *lines], bool(lines))


def _stage(verdict: Verdict) -> tuple[str, str]:
    stages = (("parser", verdict.parser), ("configuration", verdict.configuration), ("model", verdict.failed))
    return next((name, str(refusal)) for name, refusal in stages if refusal)


def _differing(rows: Iterable[Row]) -> str:
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for row in rows:
        for cell in row.cells:
            if cell.agrees is False:
                found[row.device, cell.part, cell.ours, ", ".join(cell.theirs)].append(row.model)
    lines = ["|".join((*key, ", ".join(names))) for key, names in sorted(found.items())]
    head = ["device|part|ours|vLLM's|of", "---|---|---|---|---"]
    return "## Where vLLM takes another kernel\n\n" + _table([*head, *lines], bool(lines))


def _silent(rows: Iterable[Row]) -> str:
    """Cells without a verdict, by the exception; ours stands there unverified."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for row in rows:
        if row.verdict and row.without:
            why = (
                _stage(row.verdict)[1] if row.verdict.failed or not row.verdict.accepted else "no such layer was built"
            )
            artefact = row.verdict.failed.artefact if row.verdict.failed else ""
            parts = ", ".join(f"{cell.part}: {cell.ours}" for cell in row.without)
            found[row.device, _cut(why), artefact, parts].append(row.model)
    lines = ["|".join((*key, ", ".join(names))) for key, names in sorted(found.items())]
    head = ["device|exception|why only here|ours, unverified|of", "---|---|---|---|---"]
    return "## Without a verdict\n\n" + _table([*head, *lines], bool(lines))


def _each(rows: Iterable[Row]) -> str:
    """Same cells of cells with a verdict, and how many devices, by model and device."""
    by_model: dict[str, dict[str, str]] = defaultdict(dict)
    for row in rows:
        by_model[row.model][row.device] = _shown(row)
    devices = list(dict.fromkeys(device for shown in by_model.values() for device in shown))
    lines = ["|".join((name, *(shown.get(d, "") for d in devices))) for name, shown in by_model.items()]
    head = ["model|" + "|".join(devices), "---|" + "|".join("---" for _ in devices)]
    return "## Every model\n\nDevices, and cells that are the same of those with a verdict.\n\n" + _table(
        [*head, *lines]
    )


def _shown(row: Row) -> str:
    if not row.count:
        return "no plan"
    if row.verdict is None:
        return "died" if row.died else "not asked"
    if not row.verdict.accepted:
        return f"{row.count}x refused"
    judged = [cell for cell in row.cells if cell.agrees is not None]
    return f"{row.count}x {sum(bool(cell.agrees) for cell in judged)}/{len(judged)}"


def _table(lines: Iterable[str], filled: bool = True) -> str:
    return "\n".join(f"| {line.replace('|', ' | ')} |" for line in lines) if filled else "None."


def _cut(text: str) -> str:
    plain = _FOLDER.sub("…/", " ".join(text.split()).replace("|", "/"))
    return plain if len(plain) <= _LONGEST else plain[:_LONGEST] + "…"
