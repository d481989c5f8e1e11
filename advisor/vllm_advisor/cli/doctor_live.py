"""`advisor doctor --url`: a running server read, its model and machine looked up, and what it shows said."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vllm_advisor import __version__
from vllm_advisor.cli import inputs, output
from vllm_advisor.cli.diagnostics import ExitCode, note
from vllm_advisor.errors import AdvisorError, UsageError
from vllm_advisor.hardware import Unknown
from vllm_advisor.units import significant


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_advisor.doctor.live import Answer, Diagnosis, Setting
    from vllm_advisor.doctor.live_gain import Change
    from vllm_advisor.doctor.live_plan import Inferred
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.units import Interval
    from vllm_advisor.vllm.live import Live
    from vllm_advisor.vllm.surface import Surface

_MARKS = {"ok": "ok", "watch": "watch", "act": "ACT", "unknown": "?"}
_LONGEST_INTERVAL_S = 3600.0


def run(
    url: str,
    *,
    gpu: str | None,
    node: Path | None,
    vllm: str | None = None,
    interval_s: float,
    api_key_env: str | None,
    json: bool,
) -> int:
    """Read the server twice, `interval_s` apart, and print the diagnosis; 0 whatever it says of the server.

    Raises UsageError for a bad address or variable, EngineError where nothing of vLLM answers.
    """
    from vllm_advisor.doctor.live import diagnose
    from vllm_advisor.vllm import live

    if not 0 < interval_s <= _LONGEST_INTERVAL_S:
        raise UsageError(f"--interval {interval_s:g} is not a time in seconds", "5 is usual; at most 3600")
    machine = inputs.node(gpu, node) if gpu or node else None
    seen = live.read(url, interval_s=interval_s, api_key=_key(api_key_env))
    found = diagnose(seen, _setting(seen, machine, vllm))
    for text in (*seen.notes, *_incomplete(seen)):
        note(text)
    if json:
        output.write_json(document(found))
    else:
        output.write(lines(found))
    return ExitCode.OK


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise UsageError(f"the variable {variable} is not set", "--api-key-env takes a variable's name, not the key")
    return key


def _incomplete(seen: Live) -> Iterator[str]:
    if seen.second.cut:
        yield "its /metrics is longer than what is read of one: figures may lack engines"
    if seen.second.skipped:
        yield f"{seen.second.skipped} lines of its /metrics could not be read"


def _setting(seen: Live, machine: Node | None, vllm: str | None) -> Setting:
    from vllm_advisor.doctor.live import Setting

    return Setting(_model(seen), machine or _this_machine(seen), _surface(seen, vllm))


def _model(seen: Live) -> ModelSpec | Unknown:
    """What was loaded: a folder of this host, a catalog name or a repository in the cache; never the network."""
    from vllm_advisor.catalog import hub

    names = [seen.models[0].root, seen.models[0].id] if seen.models else list(seen.second.model_names()[:1])
    for name in dict.fromkeys(names):
        if name.startswith(("/", ".", "~")) and not _is_here(seen):
            continue  # another host's folder says nothing of ours
        try:
            return hub.resolve(name, offline=True)
        except AdvisorError:
            continue
    said = f"no configuration of {names[0]} is known here" if names else "it does not name its model"
    return Unknown(said)


def _this_machine(seen: Live) -> Node | Unknown:
    """The devices of this host, if the server runs on it."""
    if not _is_here(seen):
        return Unknown("the machine is not named: give --gpu 8xH100 or --node FILE")
    try:
        return inputs.node(None, None)
    except AdvisorError as error:
        return Unknown(f"{error.message}; name it with --gpu or --node")


def _is_here(seen: Live) -> bool:
    from urllib.parse import urlsplit

    host = urlsplit(seen.url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _surface(seen: Live, vllm: str | None) -> Surface | Unknown:
    from vllm_advisor.estimate import release

    if vllm:
        return release.named(vllm).surface
    if isinstance(seen.version, Unknown):
        return Unknown(f"{seen.version.why}: give --vllm")
    try:
        return release.named(seen.version).surface
    except AdvisorError:
        return Unknown(f"{seen.version} is no release that we know: give --vllm")


def lines(found: Diagnosis) -> list[str]:
    """The diagnosis as text."""
    said = [output.bold(f"{found.live.url}, two readings {significant(found.seen.seconds)} s apart")]
    said += [line for answer in found.answers for line in _answer(answer)]
    return [*said, "", *_changes(found), *_assumed(found)]


def _answer(answer: Answer) -> Iterator[str]:
    yield from output.wrapped(f"  {_MARKS[answer.level]:<6} {answer.topic}: ", answer.text)
    if answer.hint:
        yield from output.wrapped(f"  {'':<6} → ", answer.hint)


def _changes(found: Diagnosis) -> list[str]:
    considered = found.considered
    if isinstance(considered, Unknown):
        return output.wrapped("No change is predicted: ", considered.why)
    if not considered.changes:
        title = "Leave it alone: no change has a predicted gain whose interval is above none."
    else:
        title = "Worth trying, best first (predicted on the load that was seen, not measured)"
    said = [output.bold(title)]
    if considered.doubt > 1:
        text = "the measured time per token is that many times outside our estimate, so that every gain is less sure"
        said += output.wrapped(f"  × {significant(considered.doubt)}  ", text)
    for number, change in enumerate(considered.changes, 1):
        said += _change(number, change)
    return said + [line for text in considered.others for line in output.wrapped("  looked at: ", text)]


def _change(number: int, change: Change) -> Iterator[str]:
    candidate = change.candidate
    yield from output.wrapped(f"  {number}  ", f"{candidate.words}   {candidate.flags}")
    yield f"     output {_times(change.output)}, first token {_times(change.ttft)}, ms/token {_times(change.tpot)}"
    yield f"     interval: nine of ten measured gains of {change.pairs} public pairs lay so near the predicted one"
    if candidate.price:
        yield from output.wrapped("     costs: ", candidate.price)


def _times(ratio: Interval) -> str:
    return f"× {ratio.mid:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _assumed(found: Diagnosis) -> list[str]:
    if isinstance(found.inferred, Unknown):
        return []
    label = f"{found.inferred.model.name} on {found.inferred.node.label}, vLLM {found.inferred.surface.version}"
    texts = [label, *found.inferred.assumed]
    return ["", output.bold("Taken where the server does not say"), *(f"  {text}" for text in texts)]


def document(found: Diagnosis) -> dict[str, Any]:
    """The same as one value: null where nothing is known, with the reason in the answers."""
    considered, inferred = found.considered, found.inferred
    changes = () if isinstance(considered, Unknown) else considered.changes
    return {
        "advisor": __version__,
        "url": found.live.url,
        "seconds": found.seen.seconds,
        "vllm": _plain(found.seen.version),
        "model": found.seen.name,
        "engines": list(found.seen.engines),
        "observed": _observed(found),
        "answers": [answer._asdict() for answer in found.answers],
        "judged": found.judged is True,
        "inferred": None if isinstance(inferred, Unknown) else _plan(inferred),
        "changes": None if isinstance(considered, Unknown) else [_as_json(change) for change in changes],
        "verdict": considered.why if isinstance(considered, Unknown) else "try" if changes else "leave it alone",
        "looked_at": [] if isinstance(considered, Unknown) else list(considered.others),
    }


_FIELDS = (
    "running", "waiting", "usage", "prompt_rate", "output_rate", "finished", "preemptions", "input_tokens",
    "output_tokens", "ttft", "tpot", "queue", "latency",
)  # fmt: skip


def _observed(found: Diagnosis) -> dict[str, Any]:
    seen = found.seen
    hits = seen.prefix_hits
    return {
        **{name: _plain(getattr(seen, name)) for name in _FIELDS},
        "waiting_by": dict(seen.waiting_by),
        "rejections": {reason: counted._asdict() for reason, counted in seen.rejections.items()},
        "prefix_hits": None if isinstance(hits, Unknown) else {"share": hits[0], "scope": hits[1]},
        "cache": {name: _plain(value) for name, value in seen.cache._asdict().items()},
        "max_model_len": _plain(seen.served.max_model_len) if seen.served else None,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Unknown):
        return None
    return value._asdict() if hasattr(value, "_asdict") else value


def _plan(inferred: Inferred) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "plan": asdict(inferred.plan),
        "node": inferred.node.label,
        "vllm": inferred.surface.version,
        "assumed": list(inferred.assumed),
        "kv_tokens_estimate": inferred.predicted.kv_tokens,
        "observed_over_estimate": _plain(inferred.off),
        "tpot_ms_estimate": inferred.speed.tpot_ms._asdict(),
        "ttft_ms_estimate": inferred.speed.ttft_ms._asdict(),
    }


def _as_json(change: Change) -> dict[str, Any]:
    candidate = change.candidate
    return {
        "change": candidate.words,
        "flags": candidate.flags,
        "costs": candidate.price or None,
        "output": change.output._asdict(),
        "ttft": change.ttft._asdict(),
        "tpot": change.tpot._asdict(),
        "pairs_behind_interval": change.pairs,
    }
