"""A profile as text: TOML with its provenance and a digest, signed if there is a key; and back, trusting nothing.

The digest covers the canonical content, so that layout and comments do not matter and one changed figure does. It says
that the file is what was written, not who wrote it: that is what the signature is for.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_advisor.errors import BadInput
from vllm_advisor.profile import Origin, Profile, Provenance
from vllm_advisor.redact import clean
from vllm_advisor.store import form


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.plan import Plan
    from vllm_advisor.profile import Settings

SCHEMA = 1
KIND = "vllm-advisor profile"
_LARGEST = 1 << 20  # bytes of a file; a profile has some 3,000
_KEY_BYTES = 16  # the least of a key worth the name
_FIELDS = (
    "schema",
    "kind",
    "model",
    "digest",
    "signature",
    "fingerprint",
    "plan",
    "flags",
    "measurement",
    "quality",
    "provenance",
)
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_VARIABLES = ("VLLM_", "NCCL_", "RCCL_", "CUDA_", "HIP_", "HSA_", "OMP_", "PYTORCH_")
# Of these, what lets others run code in the server (vLLM's envs.py).
_POWERFUL = ("VLLM_PLUGINS", "VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_SERVER_DEV_MODE", "VLLM_API_KEY")
# Flags beside a plan that change speed and nothing else; a file from elsewhere may set no other.
TUNABLE = (
    "--async-scheduling", "--no-async-scheduling", "--enable-prefix-caching", "--no-enable-prefix-caching",
    "--enable-chunked-prefill", "--no-enable-chunked-prefill", "--max-cudagraph-capture-size",
    "--cudagraph-capture-sizes", "--max-num-partial-prefills", "--long-prefill-token-threshold",
    "--scheduling-policy", "--stream-interval", "--all2all-backend",
)  # fmt: skip
_EXACT = ("--dtype", "float32")  # more exact than what a 16-bit checkpoint is served in by itself; no other value is
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|API_KEY|CREDENTIAL", re.IGNORECASE)


def export(profile: Profile, key: bytes | None = None) -> str:
    """The profile as TOML. No token, no path into a home and no host name leaves with it.

    `key`: sign with HMAC-SHA256. Raises BadInput for a key shorter than 16 bytes.
    """
    content = document(profile)
    seals = {"digest": digest(content)}
    if key is not None:
        seals["signature"] = _signature(content, key)
    head = "# A measured vLLM deployment: `advisor profiles import FILE` reads it, as a prior.\n"
    return head + toml({"schema": SCHEMA, "kind": KIND, **seals, **content})


def document(profile: Profile) -> dict[str, Any]:
    """What a file says of a profile: all that another machine may know."""
    origin = profile.provenance
    plan = profile.plan
    env = {name: value for name, value in plan.env if not _SECRET_NAME.search(name) and clean(value) == value}
    provenance = {
        "origin": str(origin.origin),
        "by": origin.by,
        "at": _day(origin.at),
        "source": origin.source,
        "note": origin.note,
        "trials": len(origin.trials),
    }
    content: dict[str, Any] = {
        "model": _without_folder(profile.model),
        "fingerprint": {
            "strict": form.readings_to(profile.fingerprint.strict),
            "loose": form.readings_to(profile.fingerprint.loose),
        },
        "plan": form.plan_to(plan) | {"checkpoint": _without_folder(plan.checkpoint)},
        "flags": form.settings_to(profile.flags),
        "measurement": form.measurement_to(profile.measurement),
        "quality": [form.quality_to(check) for check in profile.quality],
        "provenance": {name: value for name, value in provenance.items() if value != ""},
    }
    content["plan"].pop("env", None)
    content["plan"] |= {"env": env} if env else {}
    cleaned: dict[str, Any] = _cleaned(content)
    return cleaned


def _without_folder(name: str) -> str:
    """A repository as it is; of a folder only its last part."""
    return Path(name).name if name.startswith(("/", "~", ".")) or "\\" in name else name


def _cleaned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _cleaned(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    return clean(value) if isinstance(value, str) else value


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else ""


def digest(content: dict[str, Any]) -> str:
    """Of the canonical content."""
    return f"sha256:{hashlib.sha256(form.dumps(content).encode()).hexdigest()}"


def _signature(content: dict[str, Any], key: bytes) -> str:
    if len(key) < _KEY_BYTES:
        raise BadInput(f"the key has {len(key)} bytes, want {_KEY_BYTES} or more", "head -c 32 /dev/urandom > KEY")
    return f"hmac-sha256:{hmac.new(key, form.dumps(content).encode(), hashlib.sha256).hexdigest()}"


def read_key(path: Path | None) -> bytes | None:
    """A key file's bytes. Raises BadInput."""
    try:
        return path.read_bytes().strip() if path else None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", "head -c 32 /dev/urandom > KEY") from None


def read(path: Path, key: bytes | None = None) -> Profile:
    """The profile of a file, as an imported one. Raises BadInput, with what is wrong.

    `key`: the file must be signed with it.
    """
    try:
        raw = path.read_bytes()[: _LARGEST + 1]
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", "advisor profiles import takes a file") from None
    if len(raw) > _LARGEST:
        raise BadInput(f"{path} is larger than {_LARGEST >> 20} MiB: no profile is")
    try:
        return parse(raw, key, path.name)
    except BadInput as error:
        raise BadInput(f"{path.name}: {error.message}", error.hint or "ask its author for a new export") from None


def parse(raw: bytes, key: bytes | None = None, source: str = "") -> Profile:
    """The same of a file's content. Raises BadInput."""
    content = _loaded(raw)
    form.known(content, _FIELDS, "the profile")
    _check_schema(content)
    seals = {name: content.pop(name, None) for name in ("schema", "kind", "digest", "signature")}
    _check_seals(content, seals, key)
    given = form.mapping(content.get("fingerprint"), "fingerprint")
    form.known(given, ("strict", "loose"), "fingerprint")
    quality = content.get("quality", [])
    if not isinstance(quality, list):
        raise BadInput("quality is no list")
    return Profile(
        form.fingerprint_from(given.get("strict"), given.get("loose")),
        _harmless(form.plan_from(content.get("plan"))),
        form.measurement_from(content.get("measurement")),
        tuple(form.quality_from(check) for check in quality),
        _provenance(content.get("provenance"), source),
        form.text(content.get("model"), "model"),
        flags=_flags(content.get("flags", {})),
    )


def _harmless(plan: Plan) -> Plan:
    """Raises BadInput for a plan that reaches outside of vLLM: a folder, a library to load, a plugin."""
    if not _REPOSITORY.fullmatch(plan.checkpoint):
        raise BadInput(f"plan.checkpoint is {plan.checkpoint[:60]!r}, want a repository or a folder's name")
    for name, value in plan.env:
        if not name.startswith(_VARIABLES) or name in _POWERFUL or "/" in value:
            raise BadInput(f"plan.env sets {name}, which an imported profile may not")
    return plan


def _flags(plain: object) -> Settings:
    """Raises BadInput for a flag that is more than a matter of speed."""
    found = form.flags_from(plain)
    for name, value in found:
        if name not in TUNABLE and (name, value) != _EXACT:
            raise BadInput(f"flags holds {name}, which an imported profile may not set")
        if isinstance(value, str) and ("/" in value or value.startswith("-")):
            raise BadInput(f"flags gives {name} the value {value[:40]!r}")
    return found


def _loaded(raw: bytes) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - costs 45 ms, and only an import needs it

    try:
        return tomllib.loads(raw.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"it is no TOML: {error}") from None


def _check_schema(content: dict[str, Any]) -> None:
    if content.get("kind") != KIND:
        raise BadInput("it is no profile of vllm-advisor", "advisor profiles export ID > FILE writes one")
    found = form.whole(content.get("schema"), "schema", least=1)
    if found > SCHEMA:
        raise BadInput(f"it has schema {found}, this release reads {SCHEMA}", "pip install --upgrade vllm-advisor")


def _check_seals(content: dict[str, Any], seals: dict[str, Any], key: bytes | None) -> None:
    """Raises BadInput where the content is not what was sealed."""
    if seals["digest"] != digest(content):
        raise BadInput("the content is not what its digest was made of: somebody changed it, or it was cut")
    if key is None:
        return
    if not seals["signature"]:
        raise BadInput("it is not signed, and a key was given", "leave out --key to import it unsigned")
    if not hmac.compare_digest(str(seals["signature"]), _signature(content, key)):
        raise BadInput("it was not signed with this key")


def _provenance(plain: object, source: str) -> Provenance:
    """Whatever the file says of itself, here it is imported; its trials are not ours."""
    given = form.mapping(plain, "provenance")
    form.known(given, ("origin", "by", "at", "source", "note", "trials"), "provenance")
    words = {
        name: form.text(given.get(name, ""), f"provenance.{name}") for name in ("origin", "by", "at", "source", "note")
    }
    trials = form.whole(given.get("trials", 0), "provenance.trials", least=0)
    behind = f"{words['origin']} elsewhere, {trials} trials behind it"
    note = "; ".join(filter(None, (behind, words["note"])))
    return Provenance(Origin.IMPORTED, words["by"], _second(words["at"]), source=words["source"] or source, note=note)


def _second(day: str) -> float:
    if not day:
        return 0.0
    try:
        return datetime.strptime(day, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise BadInput(f"provenance.at is {day[:40]!r}, want 2026-01-31T12:00:00Z") from None


def toml(plain: dict[str, Any]) -> str:
    """TOML of nested tables, lists of tables, and plain values; None is left out, since TOML has none."""
    return "\n".join(_table(plain, ())).lstrip("\n") + "\n"


def _table(plain: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    below = {name: value for name, value in plain.items() if isinstance(value, dict) or _is_tables(value)}
    yield from (f"{_name(name)} = {_value(v)}" for name, v in plain.items() if name not in below and v is not None)
    for name, value in below.items():
        where = (*path, name)
        for item in value if isinstance(value, list) else [value]:
            title = ".".join(_name(part) for part in where)
            yield f"\n[[{title}]]" if isinstance(value, list) else f"\n[{title}]"
            yield from _table(item, where)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    return json.dumps(value)


def _text(text: str) -> str:
    """JSON's escapes are TOML's, but for DEL, and surrogates must not be split."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
