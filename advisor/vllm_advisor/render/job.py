"""What every format is written from, with the questions that several of them ask."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import UsageError
from vllm_advisor.hardware import Unknown, Vendor
from vllm_advisor.units import GIB


if TYPE_CHECKING:
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.plan import LaunchCommand, Plan
    from vllm_advisor.vllm.surface import Surface
    from vllm_advisor.workload import Workload

DEFAULT_PORT = 8000  # vLLM's own (0.33.0 entrypoints/common/cli_args.py, 0.24.0 entrypoints/openai/cli_args.py)
# An allowance, not a forecast: how long a start may take before it counts as stuck. The base covers imports,
# compilation and graph capture; the rest reads or downloads the weights at less than a gigabit network's 125 MB/s.
START_BASE_S = 600
START_BYTES_PER_S = 100 * 10**6
# vLLM's deployment guide gives a one-GPU pod 2 GiB (docs/deployment/k8s.md): a limit, used only as it is needed.
SHARED_MEMORY_PER_GPU_GIB = 2
_CPU_SHARED_MEMORY_GIB = 4  # vLLM's docker command for CPU: --shm-size=4g
_LONGEST_LABEL = 40  # a Kubernetes name has 63; ours is a prefix of others


class Flag(NamedTuple):
    """One option of an argv: `values` is () for a switch."""

    name: str
    values: tuple[str, ...]


class Job(NamedTuple):
    """One plan to render."""

    command: LaunchCommand
    plan: Plan
    model: ModelSpec
    node: Node
    surface: Surface
    workload: Workload
    annotate: bool

    @property
    def flags(self) -> tuple[Flag, ...]:
        """The argv behind `vllm serve MODEL`, option by option."""
        flags: list[Flag] = []
        for token in self.command.argv[3:]:
            if _is_option(token) or not flags:
                name, equals, value = token.partition("=")
                flags.append(Flag(name, (value,) if equals else ()))
            else:
                flags[-1] = Flag(flags[-1].name, (*flags[-1].values, token))
        return tuple(flags)

    @property
    def checkpoint(self) -> str:
        """The repository or folder that `vllm serve` is given."""
        return self.command.argv[2]

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        given = [flag.values[0] for flag in self.flags if flag.name == "--port" and flag.values]
        return int(given[-1]) if given else DEFAULT_PORT

    @property
    def vendor(self) -> Vendor:
        """Who made the devices that are asked for."""
        return self.node.gpu.vendor

    @property
    def devices(self) -> int:
        """Devices on the one machine that is described."""
        return self.plan.world_size // self.plan.num_nodes

    @property
    def image(self) -> str:
        """The published image of vLLM, of that version for that vendor, pinned."""
        from vllm_advisor.vllm.images import image  # noqa: PLC0415

        return image(self.surface, self.node)

    @property
    def name(self) -> str:
        """A DNS label made of the model's name, such as `vllm-gpt-oss-120b`: valid as a service, pod and unit name."""
        last = self.checkpoint.rstrip("/").rpartition("/")[2].lower()
        label = re.sub(r"[^a-z0-9]+", "-", last).strip("-")[:_LONGEST_LABEL].strip("-")
        return f"vllm-{label or 'model'}"

    @property
    def start_allowance_s(self) -> int:
        """Seconds that a start may take, download included, before it counts as stuck."""
        return START_BASE_S + math.ceil(self.model.weight_bytes / START_BYTES_PER_S)

    @property
    def shared_memory_gib(self) -> int:
        """The size of /dev/shm for the workers of one machine."""
        return _CPU_SHARED_MEMORY_GIB if self.vendor is Vendor.CPU else SHARED_MEMORY_PER_GPU_GIB * self.devices

    @property
    def cache_gib(self) -> int:
        """Room for the checkpoint and as much again: a partial download beside it, compiled kernels."""
        return math.ceil(2 * self.model.weight_bytes / GIB) + 10

    @property
    def cores(self) -> int:
        """The host's cores, 0 where they are not known."""
        return 0 if isinstance(self.node.host.cores, Unknown) else self.node.host.cores

    @property
    def local_folder(self) -> str:
        """The checkpoint's folder when it is one, "" for a repository. Raises UsageError for a relative path."""
        if self.checkpoint.startswith(("./", "../", "~")):
            hint = "give the model as an absolute path"
            raise UsageError(f"{self.checkpoint} has no meaning in a container or a service", hint)
        return self.checkpoint if self.checkpoint.startswith("/") else ""

    def why(self, name: str) -> str:
        """The note of a flag or variable, "" where there is none."""
        return next((why for noted, why in self.command.notes if noted == name), "")

    def comments(self) -> list[str]:
        """`# --flag value: why` for each flag and variable that has a note, or nothing when not asked for."""
        if not self.annotate:
            return []
        noted = [(f"{name}={value}", self.why(name)) for name, value in self.command.env]
        noted += [(" ".join((flag.name, *flag.values)), self.why(flag.name)) for flag in self.flags]
        remarks = [f"# {one_line(why)}" for name, why in self.command.notes if not name]
        return [f"# {one_line(what)}: {one_line(why)}" for what, why in noted if why] + remarks

    def heading(self) -> list[str]:
        """What this is, as comment lines: model, layout, machine, version."""
        what = f"vLLM {self.surface.version}: {self.checkpoint}, {self.plan.layout} on {self.node.label}"
        return [f"# {one_line(what)}"]

    def must_be_one_node(self, what: str) -> None:
        """Raises UsageError when the plan spans several machines."""
        if self.plan.num_nodes > 1:
            hint = "use --format command and run it on every node with its own --node-rank"
            raise UsageError(f"{what} describes one machine, this plan needs {self.plan.num_nodes}", hint)


def _is_option(token: str) -> bool:
    """`--name` and `-tp`, not `-1`: what vLLM's argument parser takes for an option."""
    return token.startswith("-") and not re.fullmatch(r"-\d*\.?\d*", token)


def one_line(text: str) -> str:
    """A comment must not become two lines, of which the second would be code."""
    return " ".join(text.split())
