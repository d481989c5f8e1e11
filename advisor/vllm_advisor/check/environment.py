"""Environment variables: known to this version or not, readable or not, and whether they change anything.

vLLM looks at names that begin with VLLM_ only; of an unknown one it warns, or stops with --fail-on-environ-validation.
A value is read when it is first needed (envs.py), so a broken one stops the server late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.check.finding import ERROR, Change, Finding
from vllm_advisor.check.flags import instead
from vllm_advisor.check.ids import BY_ID
from vllm_advisor.check.nearest import nearest
from vllm_advisor.check.values import is_unresolved
from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.changes import successor_of_env


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.invocation import Reading
    from vllm_advisor.vllm.changes import Successor
    from vllm_advisor.vllm.surface import EnvVar, Surface

# How a switch is read, where it is not bool(int(value)): envs.py of 0.24.0 to 0.33.0, the same in all of them.
# `x.lower() in ("1", "true")`; every VLLM_ROCM_USE_AITER… is one of these, and what is in neither list is a number.
_WORDS = frozenset((
    "VLLM_USE_PRECOMPILED", "VLLM_USE_PRECOMPILED_RUST", "VLLM_DOCKER_BUILD_CONTEXT", "VLLM_USE_MODELSCOPE",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "VLLM_TRITON_FORCE_FIRST_CONFIG", "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
    "VLLM_DISABLE_PYNCCL", "VLLM_USE_OINK_OPS", "VLLM_MXFP8_EMULATION_DEQUANT_AT_LOAD", "VLLM_ROCM_USE_SKINNY_GEMM",
    "VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT", "VLLM_ROCM_QUICK_REDUCE_CAST_BF16_TO_FP16", "VLLM_MOONCAKE_STORE_TIER_LOG",
    "VLLM_ENFORCE_STRICT_TOOL_CALLING", "VLLM_ENABLE_CUDA_COMPATIBILITY", "VLLM_SKIP_MODEL_NAME_VALIDATION",
    "VLLM_USE_HW_AGNOSTIC", "VLLM_REPLICATE_EMBED", "VLLM_MXFP4_EMULATION_DEQUANT_AT_LOAD", "VLLM_ROCM_MONO_DECODE",
    "VLLM_ROCM_AITER_MEGA_MOE_FUSE_SHARED_EXPERTS", "VLLM_BEAM_ALWAYS_CONSTRAIN_OUTPUT", "AITER_SITUV2_A8W4",
))  # fmt: skip
_WORDS_PREFIX = "VLLM_ROCM_USE_AITER"
# `x == "1"`: everything else is off, `true` too.
_ONE = frozenset((
    "VLLM_USE_STANDALONE_COMPILE", "VLLM_ENABLE_PREGRAD_PASSES", "VLLM_USE_BREAKABLE_CUDAGRAPH", "VLLM_FORCE_AOT_LOAD",
    "VLLM_USE_AOT_COMPILE", "VLLM_USE_MEGA_AOT_ARTIFACT", "VLLM_NO_USAGE_STATS", "VLLM_DO_NOT_TRACK",
    "VLLM_SKIP_P2P_CHECK", "VLLM_RANDOMIZE_DP_DUMMY_INPUTS", "VLLM_MARLIN_USE_ATOMIC_ADD", "VLLM_V1_USE_OUTLINES_CACHE",
))  # fmt: skip
# Read in a way of their own, which is not judged.
_OWN_WAY = frozenset((
    "VLLM_TRITON_USE_TD", "VLLM_TRITON_ATTN_USE_TD", "VLLM_TPU_USING_PATHWAYS", "VLLM_DEBUG_LOG_API_SERVER_RESPONSE",
    "NO_COLOR", "FORCE_COLOR",
))  # fmt: skip
_MEANS_ON = frozenset(("1", "true", "yes", "on"))
# All begin with VLLM_ and share words: only a slip or two is one.
_NEAR = 0.9
_STRICT = "--fail-on-environ-validation"


def findings(reading: Reading, surface: Surface) -> tuple[Finding, ...]:
    """Every fault of the command's variables, in their order."""
    found = [f for name, value in reading.invocation.env for f in _of_variable(name, value, reading, surface)]
    return (*found, *_unexported(reading))


def _unexported(reading: Reading) -> Iterator[Finding]:
    for name, value in reading.invocation.unexported:
        text = f"{name} is set in the script and not exported: vLLM does not see it"
        yield _finding("ENV-17", name, text, f"export {name}={value}", Change(env=((name, value),)))


def _of_variable(name: str, value: str, reading: Reading, surface: Surface) -> Iterator[Finding]:
    variable = surface.env.get(name)
    if variable is not None:
        if not is_unresolved(value):
            yield from _value(variable, value)
    elif not surface.has_env(name):
        yield _unknown(name, value, reading, surface)


def _unknown(name: str, value: str, reading: Reading, surface: Surface) -> Finding:
    """A VLLM_ name that this version does not register."""
    found = _gone(name, value, reading, surface) or _slip(name, surface)
    if reading.on(_STRICT):
        return found._replace(level=ERROR, text=f"{found.text}; {_STRICT} makes vLLM stop at it")
    return found


def _gone(name: str, value: str, reading: Reading, surface: Surface) -> Finding | None:
    """Registered by another version, or known to have been by an older one."""
    there, successor = _released(name), successor_of_env(name, surface, value)
    if there and _release(there[0]) > surface.release:
        text = f"{name} came with vLLM {there[0]}; {surface.version} warns and ignores it"
        found = _finding("ENV-12", name, text, "leave it out", _unset(name))
    elif there or successor:
        last = f": {there[-1]} was the last to read it" if there else ""
        text = f"{name} is gone from vLLM {surface.version}, which warns and ignores it{last}"
        found = _finding("ENV-11", name, text, "leave it out", _unset(name))
    else:
        return None
    return found if successor is None else _succeeded(found, successor, name, reading)


def _succeeded(finding: Finding, successor: Successor, name: str, reading: Reading) -> Finding:
    """With what stands in the variable's place; a flag that is given already is left as it is."""
    end = len(reading.invocation.argv)
    hint, change = instead(successor, end, end)
    given = {s.flag.name for s in reading.settings if s.flag}
    if change is not None:
        words = () if given & set(change.words) else change.words
        change = Change(end, end, words, ((name, None), *change.env))
    return finding._replace(hint=hint, change=change, source=successor.source)


def _slip(name: str, surface: Surface) -> Finding:
    text = f"vLLM {surface.version} does not know {name}, warns and ignores it"
    near = nearest(name, (n for n in surface.env if n.startswith("VLLM_")), _NEAR)
    return _finding(
        "ENV-03", name, text, f"did you mean {near}?" if near else "leave it out", None if near else _unset(name)
    )


def _released(name: str) -> tuple[str, ...]:
    from vllm_advisor.vllm import surface as surfaces  # noqa: PLC0415

    return tuple(v for v in surfaces.versions() if name in surfaces.load(v).env)


def _release(version: str) -> tuple[int, int, int]:
    from vllm_advisor.vllm.surface import release_of  # noqa: PLC0415

    return release_of(version)


def _unset(name: str) -> Change:
    return Change(env=((name, None),))


def _value(variable: EnvVar, value: str) -> Iterator[Finding]:
    """A value that cannot be read, is read as something else than meant, or changes nothing."""
    faults = list(_faults(variable, value))
    yield from faults
    if not faults and _is_default(variable, value):
        text = f"{variable.name}={value} changes nothing: that is the default"
        yield _finding("ENV-14", variable.name, text, "leave it out", _unset(variable.name))


def _faults(variable: EnvVar, value: str) -> Iterator[Finding]:
    if variable.kind == "bool":
        yield from _switch(variable.name, value)
    elif variable.kind in ("int", "float"):
        read = _number(value, variable.kind)
        if read is None:
            kind = "a whole number" if variable.kind == "int" else "a number"
            yield _finding(
                "ENV-13", variable.name, f"{variable.name}={value!r} is not {kind}: vLLM stops when it reads it"
            )
    elif variable.choices:
        yield from _choice(variable, value)


def _switch(name: str, value: str) -> Iterator[Finding]:
    text = value.strip().lower()
    if name in _OWN_WAY:
        return
    if name in _WORDS or name.startswith(_WORDS_PREFIX) or name in _ONE:
        takes = "1" if name in _ONE else "1 or true"
        on = ("1",) if name in _ONE else ("1", "true")
        if text in _MEANS_ON and text not in on:
            says = f"{name}={value} is read as off: only {takes} turns it on"
            yield _finding("ENV-16", name, says, f"{name}=1", Change(env=((name, "1"),)))
    elif _number(value, "int") is None:
        meant = "1" if text in _MEANS_ON else "0" if text in ("false", "no", "off") else ""
        change = Change(env=((name, meant),)) if meant else None
        says = f"{name}={value!r}: vLLM reads a number there, and stops"
        yield _finding("ENV-13", name, says, f"{name}={meant or '0 or 1'}", change)


def _number(value: str, kind: str) -> float | None:
    try:
        return int(value) if kind == "int" else float(value)
    except ValueError:
        return None


def _choice(variable: EnvVar, value: str) -> Iterator[Finding]:
    """Some are compared without case; a list has commas."""
    allowed = {c.lower() for c in variable.choices}
    if variable.name in ("MAX_JOBS", "NVCC_THREADS", "CMAKE_BUILD_TYPE"):  # of a build, not of a server
        return
    wrong = [part for part in value.split(",") if part.strip() and part.strip().lower() not in allowed]
    if wrong or not value.strip():
        says = f"{variable.name}={value}: it takes {', '.join(variable.choices)}"
        near = nearest(wrong[0].strip().lower(), allowed) if wrong else ""
        yield _finding("ENV-15", variable.name, says, f"did you mean {near}?" if near else "")


def _is_default(variable: EnvVar, value: str) -> bool:
    default = variable.default
    if isinstance(default, Unknown) or default is None:
        return False
    if variable.kind == "bool":
        return bool(default) == (value.strip().lower() in ("1", "true"))
    if variable.kind in ("int", "float"):
        return bool(_number(value, variable.kind) == default)
    return bool(value and value == default)


def _finding(finding_id: str, name: str, text: str, hint: str = "", change: Change | None = None) -> Finding:
    row = BY_ID[finding_id]
    return Finding(finding_id, row.level, text, row.source, hint, name, -1, change)
