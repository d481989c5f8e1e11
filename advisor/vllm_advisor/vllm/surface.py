"""What one version of vLLM accepts: flags, environment variables, names of methods and backends.

A surface is read from that version's own source (`vllm_advisor.vllm.extract`) and shipped as JSON, so that a command
can be checked against the version it is written for, with no vLLM in reach. What source reading could not tell is an
`Unknown` with the reason, or stands in `unread`; it is never a guess.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from vllm_advisor.errors import UnknownVllm
from vllm_advisor.hardware import Unknown


if TYPE_CHECKING:
    from collections.abc import Mapping

_FOLDER = Path(__file__).parent / "surfaces"
# What a recommendation does not need: kept in a second file, `surfaces/more/VERSION.json`, which costs nothing unread.
MORE = (
    "quantization_methods", "platform_quantizations", "batch_defaults", "log_lines", "metrics", "kernels",
    "unread_more",
)  # fmt: skip


class Flag(NamedTuple):
    """One option of `vllm serve`. `field` is the argument's name in Python, `group` vLLM's config class.

    `kind`: `bool` (has a `--no-` form), `switch` (has none), `int`, `float`, `str`, `json`, `list`, `optional-str`.
    `choices` are the values that the version itself lists; () means any. `default`: a JSON value, or Unknown.
    """

    name: str
    field: str
    group: str
    kind: str
    default: Any
    choices: tuple[str | int, ...] = ()
    aliases: tuple[str, ...] = ()


class EnvVar(NamedTuple):
    """One environment variable that the version registers. `default` as the version reads it, or Unknown."""

    name: str
    kind: str
    default: Any
    choices: tuple[str, ...] = ()


class QuantizationMethod(NamedTuple):
    """One quantization method. `min_capability` is 80 for 8.0; None: the source computes it.

    `activations` are torch's types, () if unread. `online`: takes an unquantized checkpoint, quantizes `online_parts`
    (linear, moe). `moe`, `linear`: such layers of a quantized checkpoint get its kernels; None: another class decides.
    """

    config: str
    min_capability: int | None
    activations: tuple[str, ...]
    online: bool
    checkpoint: bool
    moe: bool | None
    linear: bool | None
    online_parts: tuple[str, ...] = ()


class BatchTier(NamedTuple):
    """Defaults of one class of cards. `when` is vLLM's own test, `memory_gib` the least memory in it, if any.

    `tokens` and `seqs` by use (`llm`, `server`); a text is an expression (`2048 * world_size`).
    """

    when: str
    memory_gib: int | None
    tokens: Mapping[str, int | str]
    seqs: Mapping[str, int | str]


class LogLine(NamedTuple):
    """One line: the event that it tells of, the file and level (`raise`: an exception), and its format string."""

    event: str
    path: str
    level: str
    format: str


class Surface(NamedTuple):
    """All that one vLLM version takes. Names are vLLM's own, in the order of its source.

    `build` says which wheel was read (cuda, cpu). `architectures` maps an architecture to the registry's section;
    `removed_architectures` to the last version that had it. `spellings` maps every alias to the flag's full name.
    `more` holds what the properties below are read from; None: the shipped second file, read when one is asked for.
    """

    version: str
    release: tuple[int, int, int]
    build: str
    flags: Mapping[str, Flag]
    env: Mapping[str, EnvVar]
    spellings: Mapping[str, str]
    quantizations: tuple[str, ...]
    deprecated_quantizations: tuple[str, ...]
    online_quantizations: tuple[str, ...]
    kv_cache_dtypes: tuple[str, ...]
    attention_backends: tuple[str, ...]
    moe_backends: tuple[str, ...]
    linear_backends: tuple[str, ...]
    all2all_backends: tuple[str, ...]
    tokenizer_modes: tuple[str, ...]
    reasoning_parsers: tuple[str, ...]
    tool_parsers: tuple[str, ...]
    architectures: Mapping[str, str]
    removed_architectures: Mapping[str, str]
    deprecated_flags: Mapping[str, str]
    unread: tuple[str, ...]
    more: Mapping[str, Any] | None = None

    @property
    def quantization_methods(self) -> Mapping[str, QuantizationMethod]:
        """What the version says of each quantization method."""
        return {name: _quantization(row) for name, row in self._more("quantization_methods", {}).items()}

    @property
    def platform_quantizations(self) -> Mapping[str, tuple[str, ...]]:
        """The methods that a platform allows (`rocm`, `xpu`); a platform that is not there allows all."""
        return {name: tuple(row) for name, row in self._more("platform_quantizations", {}).items()}

    @property
    def batch_defaults(self) -> tuple[BatchTier, ...]:
        """The tiers of max_num_batched_tokens and max_num_seqs in source order; the first that holds counts."""
        return tuple(BatchTier(**row) for row in self._more("batch_defaults", []))

    @property
    def metrics(self) -> Mapping[str, str]:
        """Every metric's name (as registered) and its kind: gauge, counter, histogram, "" where it is not said."""
        return cast("Mapping[str, str]", self._more("metrics", {}))

    @property
    def log_lines(self) -> tuple[LogLine, ...]:
        """The lines that a reader of the start-up needs, by event."""
        return tuple(LogLine(*row) for row in self._more("log_lines", []))

    @property
    def kernels(self) -> Mapping[str, Any]:
        """Attention, MoE and linear kernels in their order with their gates, as extracted (`extract_kernels`)."""
        return cast("Mapping[str, Any]", self._more("kernels", {}))

    @property
    def not_read(self) -> tuple[str, ...]:
        """`unread`, and what was not read of the properties above."""
        return (*self.unread, *self._more("unread_more", []))

    def _more(self, name: str, nothing: Any) -> Any:
        raw = self.more if self.more is not None else _read_more(self.version)
        return raw[name] if raw and name in raw else nothing

    def __hash__(self) -> int:
        return hash((self.version, self.build))

    def __repr__(self) -> str:
        return f"Surface({self.version}, {self.build})"

    def flag(self, text: str) -> Flag | None:
        """The flag that an argument means: `-tp`, `-O3`, `--no-enable-x`, `--max_model_len`, `--a.b=1`."""
        return self.flags.get(self.spelling(text) or "")

    def spelling(self, text: str) -> str | None:
        """The full name of a flag however it is written, None where this version has no such flag."""
        if text in self.flags:
            return text
        if text.startswith("-O"):  # -O3, -O 3: utils/argparse_utils.py rewrites it
            return "--optimization-level"
        bare = text.partition("=")[0].partition(".")[0].replace("_", "-")
        if bare in self.flags:
            return bare
        if bare.startswith("--no-"):
            positive = self.flags.get("--" + bare[5:])
            return positive.name if positive and positive.kind == "bool" else None
        return self.spellings.get(bare)

    def has_flag(self, text: str) -> bool:
        """Whether `vllm serve` of this version takes it."""
        return self.spelling(text) is not None

    def has_env(self, name: str) -> bool:
        """Whether the version registers the variable; names without VLLM_ are never checked by vLLM, and not by us."""
        return name in self.env or not name.startswith("VLLM_")

    def has_architecture(self, architecture: str) -> bool:
        """Whether the model registry has it (a fallback to transformers' own modelling is not counted)."""
        return architecture in self.architectures

    def at_least(self, *release: int) -> bool:
        """`at_least(0, 33)`: this version or a newer one."""
        return self.release[: len(release)] >= release


@functools.cache
def versions() -> tuple[str, ...]:
    """The versions that we have a surface of, oldest first."""
    return tuple(sorted((path.stem for path in _FOLDER.glob("*.json")), key=release_of))


def release_of(version: str) -> tuple[int, int, int]:
    """(0, 33, 0) of `0.33.0`, `v0.33` or `0.33.0+cu130`; raises UnknownVllm when it is no version."""
    numbers = version.strip().removeprefix("v").split("+")[0].split(".")[:3]
    try:
        major, minor, patch = (int(n) for n in [*numbers, "0", "0"][:3])
    except ValueError:
        raise UnknownVllm(f"{version!r} is not a vLLM version", f"known: {', '.join(versions())}") from None
    return major, minor, patch


def load(version: str) -> Surface:
    """The surface of a version: `0.33.0`, `v0.33.0`, `0.33` (its newest patch we know) or `latest`.

    Raises UnknownVllm with the known versions and the nearest one.
    """
    return _read(_resolve(version))


def _resolve(version: str) -> str:
    known = versions()
    wanted = version.strip().removeprefix("v").split("+")[0]
    if wanted in ("", "latest"):
        return known[-1]
    matching = [k for k in known if k == wanted or k.startswith(wanted + ".")]
    if matching:
        return matching[-1]
    raise UnknownVllm(f"no surface of vLLM {wanted}", f"nearest is {_nearest(wanted)}; known: {', '.join(known)}")


def _nearest(wanted: str) -> str:
    """By release number where it is one, the newest otherwise."""
    known = versions()
    try:
        target = release_of(wanted)
    except UnknownVllm:
        return known[-1]
    return min(known, key=lambda k: tuple(abs(a - b) for a, b in zip(release_of(k), target, strict=True)))


@functools.cache
def _read(version: str) -> Surface:
    raw = json.loads((_FOLDER / f"{version}.json").read_bytes())
    return surface_of(raw)


@functools.cache
def _read_more(version: str) -> Mapping[str, Any]:
    """The second file of a version, {} where none is shipped."""
    path = _FOLDER / "more" / f"{version}.json"
    return cast("Mapping[str, Any]", json.loads(path.read_bytes()) if path.is_file() else {})


def surface_of(raw: Mapping[str, Any]) -> Surface:
    """A Surface of what `extract` returns (or of its JSON)."""
    flags = {name: Flag(name, *_row(row)) for name, row in raw["flags"].items()}
    more = {name: raw[name] for name in MORE if name in raw}
    names = ("quantizations", "deprecated_quantizations", "online_quantizations", "kv_cache_dtypes",
             "attention_backends", "moe_backends", "linear_backends", "all2all_backends", "tokenizer_modes",
             "reasoning_parsers", "tool_parsers", "unread")  # fmt: skip
    return Surface(
        version=raw["version"],
        release=release_of(raw["version"]),
        build=raw["build"],
        flags=flags,
        env={name: _variable(name, *row) for name, row in raw["env"].items()},
        spellings={alias: f.name for f in flags.values() for alias in f.aliases},
        architectures={a: section for section, group in raw["architectures"].items() for a in group},
        removed_architectures=raw["removed_architectures"],
        deprecated_flags=raw["deprecated_flags"],
        more=more or None,
        **{name: tuple(raw[name]) for name in names},
    )


def _quantization(row: Mapping[str, Any]) -> QuantizationMethod:
    listed = {"activations": tuple(row["activations"] or ()), "online_parts": tuple(row.get("online_parts", ()))}
    return QuantizationMethod(**{**row, **listed})


def _variable(name: str, kind: str, default: Any, choices: tuple[str, ...] = ()) -> EnvVar:
    return EnvVar(name, kind, _default(default), tuple(choices))


def _row(row: list[Any]) -> tuple[str, str, str, Any, tuple[Any, ...], tuple[str, ...]]:
    field, group, kind, default, *rest = row
    choices, aliases, *_ = [*rest, (), ()]
    return field, group, kind, _default(default), tuple(choices), tuple(aliases)


def _default(value: Any) -> Any:
    return Unknown(value["unread"]) if type(value) is dict and "unread" in value else value
