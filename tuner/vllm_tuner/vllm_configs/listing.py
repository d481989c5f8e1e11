"""For one model under one plan on one device: the files that vLLM will look for, and whether anybody reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.vllm.schemes import expert_scheme
from vllm_tuner.vllm_configs import legal, shipped
from vllm_tuner.vllm_configs.defaults import Where
from vllm_tuner.vllm_configs.devices import device_names
from vllm_tuner.vllm_configs.names import kind
from vllm_tuner.vllm_configs.readers import reader
from vllm_tuner.vllm_configs.shapes import shapes


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_advisor.hardware import Gpu
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import Plan
    from vllm_advisor.vllm.surface import Surface
    from vllm_tuner.vllm_configs.legal import Problem
    from vllm_tuner.vllm_configs.names import ExpertsFile
    from vllm_tuner.vllm_configs.readers import Reader
    from vllm_tuner.vllm_configs.shapes import Shape

_SHIPPED = {True: "yes", False: "no", None: "not known"}


class Row(NamedTuple):
    """One name that vLLM may look for. `shipped`: in vLLM's package, None not known; `present`: in the folder."""

    file: ExpertsFile
    shipped: bool | None
    present: bool | None


class Listing(NamedTuple):
    """Everything that `tuner files` says. `scheme` of the experts while serving.

    `folder` None: none was named, and VLLM_TUNED_CONFIG_FOLDER is not set.
    """

    model: str
    layout: str
    gpu: Gpu
    where: Where
    reader: Reader
    scheme: str
    shapes: tuple[Shape, ...]
    devices: tuple[str, ...]
    folder: Path | None
    rows: tuple[Row, ...]

    @property
    def asked(self) -> legal.Asked:
        """What files are checked against."""
        return legal.Asked(self.shapes, self.devices, self.where)

    @property
    def version(self) -> str:
        """The release that was asked about."""
        return ".".join(map(str, self.where.release))


class Asked(NamedTuple):
    """The question: a model under a plan of some release, on a device that may have been heard to say its name."""

    model: ModelSpec
    plan: Plan
    surface: Surface
    gpu: Gpu
    told: str = ""
    redundant_experts: int = 0


def listing(asked: Asked, folder: Path | None) -> Listing:
    """Raises BadInput for a model without experts and for a split that vLLM refuses."""
    model, plan, surface, gpu = asked[:4]
    first = reader(model, plan, surface, gpu.arch)
    found = shapes(model, plan, surface, first.backend, redundant_experts=asked.redundant_experts)
    exact = reader(model, plan, surface, gpu.arch, intermediate=found[0].intermediate)
    devices = device_names(gpu, surface.release, told=asked.told)
    files = [shape.file(device) for device in devices for shape in found]
    rows = tuple(Row(f, shipped.is_shipped(f, surface.release), _present(f, folder)) for f in files)
    where = Where(surface.release, gpu.vendor, gpu.arch)
    return Listing(model.name, plan.layout, gpu, where, exact, expert_scheme(model, plan), found, devices, folder, rows)


def _present(file: ExpertsFile, folder: Path | None) -> bool | None:
    return None if folder is None else (folder / file.name).is_file()


def check(found: Listing, folder: Path) -> tuple[Problem, ...]:
    """What is wrong with the folder: with each file, and as a whole."""
    files = sorted(folder.glob("*.json"))
    lines = [problem for path in files for problem in legal.problems(path, found.asked)]
    return (*_whole(found, folder, any(kind(path.name) == "experts" for path in files)), *lines)


def _whole(found: Listing, folder: Path, holds_any: bool) -> Iterator[Problem]:
    if not found.reader.is_read:
        yield legal.Problem(folder.name, "error", f"nobody reads it: {found.reader.why}")
    if not holds_any:
        yield legal.Problem(folder.name, "error", "no file for experts in it")


def lines(found: Listing) -> list[str]:
    """The listing for people."""
    from vllm_advisor.cli import output

    by = found.reader
    head = f"{found.model}, {found.layout}, vLLM {found.version} on {found.gpu.name}"
    title = "file" if by.is_read else "file (nobody looks for it)"
    rows = [("", title, "in vLLM's package", "in the folder")]
    rows += [("", row.file.name, _SHIPPED[row.shipped], _here(row)) for row in found.rows]
    many = len(found.devices) > 1
    return [
        head,
        f"experts run on {by.backend or 'nothing'}: a tuned file is {_read(by)}; {by.why}",
        *([f"not read from vLLM's source: {by.unverified}"] if by.unverified else []),
        "",
        *output.table(rows),
        *(["", "which of the names it is, the driver says: --device-name takes it"] if many else []),
        f"folder: {found.folder or 'none (VLLM_TUNED_CONFIG_FOLDER is not set)'}; it goes before vLLM's package",
    ]


def _read(by: Reader) -> str:
    return {"always": "read", "sometimes": "read for some batch sizes", "never": "never read"}[by.reads]


def _here(row: Row) -> str:
    return "" if row.present is None else "yes" if row.present else "no"


def record(found: Listing) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "schema": 1,
        "model": found.model,
        "layout": found.layout,
        "vllm": found.version,
        "gpu": found.gpu.name,
        "backend": found.reader.backend,
        "reads": found.reader.reads,
        "why": found.reader.why,
        "scheme": found.scheme,
        "unverified": found.reader.unverified,
        "shapes": [shape._asdict() for shape in found.shapes],
        "device_names": list(found.devices),
        "folder": str(found.folder) if found.folder else None,
        "files": [{"name": r.file.name, "shipped": r.shipped, "present": r.present} for r in found.rows],
    }
