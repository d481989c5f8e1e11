"""What changed between vLLM's versions in how it takes and counts memory, from 0.5 to 0.33.

One row a change, with the first release that has it and where that release's source says so
(`defaults_before_0_24.json`); an `Era` is all rows up to a release. A version that has no shipped surface gets a light
one, which knows its number alone: enough for memory, nothing for flags.
"""

# No postponed annotations here: the fields of Era would each be compiled from text at import (2 ms).

import functools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import UnknownVllm
from vllm_advisor.hardware import Vendor
from vllm_advisor.vllm.surface import Surface, load, versions


if TYPE_CHECKING:
    from vllm_advisor.hardware import Gpu

_TABLE = Path(__file__).parent / "defaults_before_0_24.json"
_VERSION = r"(?<![\d.])(\d+)\.(\d+)(?:\.(\d+))?(?:(?:rc|a|b)\d+)?(\.post\d+)?(?:\.dev(\d+))?"
# A development build with this many commits is nearer to the next release of the main line than to the one before:
# releases are 250 to 500 commits apart (an estimate).
_HALF_WAY = 100
# Up to here patch releases were cut from the main line; later ones add single fixes to a release branch.
_PATCHES_ON_MAIN = (0, 11, 1)
_LAST_V0_ALONE = (0, 7, 3)
# Facts of a V0 that still moved beside V1, and the utilization, which both share.
_OF_V0 = ("gpu_memory_utilization", "latent_alignment", "chunks_on_amd", "chunks_latent")

Release = tuple[int, int, int]


class Era(NamedTuple):
    """What one release does about memory; the words of the text fields are explained in the table, row by row.

    `engine` is the default, `v1_…` what that engine can do where V0 still takes the rest (`v0_is_left`). `accounting`
    is how available memory is measured; `tokens_line` and `concurrency_line` are what the start-up log prints.
    `…_block_…` and `capture_step` are in tokens, `latent_alignment` in bytes a token and layer.
    """

    engine: str
    v0_is_left: bool
    v1_capability: int
    v1_on_amd: bool
    v1_with_pipeline: bool
    v1_with_states: bool
    v1_fp8_kv: str
    v1_lacks: str
    gpu_memory_utilization: float
    batch_tiers: str
    cpu_by_ranks: bool
    seqs_within_tokens: bool
    tokens_within_seqs: bool
    chunks_when_long: bool
    chunks_multimodal: bool
    chunks_latent: bool
    chunks_on_amd: bool
    chunk_tokens: int
    multimodal_tokens: int
    prefix_caching: bool
    prefix_caching_hybrids: bool
    accounting: str
    charges_graphs_nvidia: bool
    charges_graphs_amd: bool
    largest_capture: int
    largest_capture_blackwell: int
    largest_capture_gpt_oss: int
    captures_follow_seqs: bool
    capture_step: int
    graph_modes: int
    sampler: str
    async_scheduling: bool
    async_with_pipeline: bool
    batches_in_flight: int
    tokens_line: str
    concurrency_line: str
    sliding_beside_full: str
    chunked_local: str
    group_slack: float
    unequal_pages: str
    state_cache_mode: str
    state_blocks: int
    checkpoint_blocks_mamba2: int
    checkpoint_blocks_gdn: int
    spare_blocks: int
    latent_cache: bool
    latent_alignment: int
    latent_block_hopper: int
    latent_block_blackwell: int

    def charges_graphs(self, vendor: Vendor) -> bool:
        """Whether graphs are taken off before the KV cache is sized."""
        return {Vendor.NVIDIA: self.charges_graphs_nvidia, Vendor.AMD: self.charges_graphs_amd}.get(vendor, False)


@functools.cache
def era(release: Release) -> Era:
    """The facts of a release; one newer than the newest row is taken like it, one older than 0.5 like 0.5."""
    facts: dict[str, Any] = {}
    for row in _table()["changes"]:
        if row["fact"] not in facts or _numbers(row["since"]) <= release:
            facts[row["fact"]] = row["value"]
    return Era(**facts)


@functools.cache
def on_v0(release: Release) -> Era:
    """The facts of a release where what was asked for falls back to V0, which 0.7.3 left nearly as it then stayed."""
    facts = era(release)
    return era(min(release, _LAST_V0_ALONE))._replace(**{name: getattr(facts, name) for name in _OF_V0})


def era_of(
    release: Release,
    gpu: "Gpu",
    *,
    has_states: bool = False,
    pipeline_parallel_size: int = 1,
    kv_cache_dtype: str = "auto",
    quantization: str = "",
) -> Era:
    """The facts for one configuration: those of the engine that this release takes for it.

    `quantization` is vLLM's name of the method. What a user forces (VLLM_USE_V1) and tasks other than generation are
    not looked at.
    """
    facts = era(release)
    if facts.engine == "V0" or not facts.v0_is_left:
        return facts
    falls_back = (
        (gpu.vendor is Vendor.NVIDIA and gpu.capability < facts.v1_capability)
        or (gpu.vendor is Vendor.AMD and not facts.v1_on_amd)
        or (pipeline_parallel_size > 1 and not facts.v1_with_pipeline)
        or (has_states and not facts.v1_with_states)
        or (gpu.vendor is Vendor.CPU and not facts.cpu_by_ranks)
        or quantization in facts.v1_lacks.split()
        or not _takes_kv_dtype(facts, gpu, kv_cache_dtype)
    )
    return on_v0(release) if falls_back else facts


def _takes_kv_dtype(facts: Era, gpu: "Gpu", dtype: str) -> bool:
    if dtype == "auto" or facts.v1_fp8_kv == "any" or gpu.vendor is Vendor.AMD:
        return True
    return (gpu.capability == 90 and "hopper" in facts.v1_fp8_kv) or (
        gpu.capability == 100 and "blackwell" in facts.v1_fp8_kv
    )


def parse(text: str) -> Release | None:
    """The release whose facts hold for a version string, None where there is no version in it.

    `0.13.0 (nvcr.io/nvidia/vllm:26.01-py3)`, `v0.19.1+`, `0.6.3.post1` are the release itself. A development build is
    named after the release that would follow its last tag, and counts commits since: 0.17.1rc1.dev126 is on the way
    from 0.17.0 to 0.18.0, for 0.17.1 was cut from a branch. From 100 commits on it is taken for the release ahead,
    with fewer for the one behind; `X.Y.0` builds, which are close before their release, always for that one.
    """
    found = re.search(_VERSION, text)
    if found is None:
        return None
    major, minor, patch, post, commits = found.groups()
    release = (int(major), int(minor), int(patch or 0))
    return release if commits is None else _of_build(release, int(commits), posted=post is not None)


def version_at(date: str) -> str:
    """The release that was newest on an ISO date (`2026`, `2026-06` mean their first day); the oldest for one before.

    Dates are those of the wheels' build, which is up to a few days before they could be installed.
    """
    dates: dict[str, str] = _table()["releases"]
    day = (date + "-01-01")[:10] if len(date) < 7 else (date + "-01")[:10]
    known = [version for version, built in dates.items() if built <= day]
    return known[-1] if known else next(iter(dates))


def surface_for(version: str) -> Surface:
    """The shipped surface of a version, or one that knows its release alone (no flags, no backends).

    Raises UnknownVllm when there is no version in the text.
    """
    release = parse(version)
    if release is None:
        raise UnknownVllm(f"{version!r} is not a vLLM version", f"known: {', '.join(versions())}")
    text = ".".join(map(str, release))
    return load(text) if text in versions() else _light(release)


@functools.cache
def _light(release: Release) -> Surface:
    facts: dict[str, Any] = dict.fromkeys(Surface._fields, ())
    facts |= {name: {} for name in _MAPPINGS}
    facts |= {"version": ".".join(map(str, release)), "release": release, "build": "history"}
    return Surface(**facts)


_MAPPINGS = ("flags", "env", "spellings", "architectures", "removed_architectures", "deprecated_flags")


def _of_build(release: Release, commits: int, *, posted: bool) -> Release:
    main = _main_line()
    ahead = next((r for r in main if (r > release if posted else r >= release)), None)
    if ahead is None:
        return release
    if commits >= _HALF_WAY or release[2] == 0:
        return ahead
    return max((r for r in main if r < ahead), default=ahead)


@functools.cache
def _main_line() -> tuple[Release, ...]:
    """Releases that were cut from the main line, oldest first."""
    releases = sorted({_numbers(version) for version in _table()["releases"]})
    return tuple(r for r in releases if r[2] == 0 or r <= _PATCHES_ON_MAIN)


@functools.cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_TABLE.read_bytes())
    return table


def _numbers(version: str) -> Release:
    """(0, 6, 3) of `0.6.3.post1`."""
    major, minor, patch = (int(n) for n in version.split(".")[:3])
    return major, minor, patch
