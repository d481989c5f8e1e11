"""What the command opens: to the network, to the repository's code, to requests. Secrets are named, never shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_advisor.check import mend
from vllm_advisor.check.finding import NOTE


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.check.configuration import Asked
    from vllm_advisor.check.finding import Finding
    from vllm_advisor.model import ModelSpec

_HOST, _KEY, _KEY_VARIABLE = "--host", "--api-key", "VLLM_API_KEY"
_ORIGINS, _TRUST, _DEV = "--allowed-origins", "--trust-remote-code", "VLLM_SERVER_DEV_MODE"
_LOOPBACK = ("127.", "localhost", "::1", "[::1]")
_GUARDED = {False: "/v1", True: "/v1, /v2, /inference and /cohere"}


def findings(given: Asked, model: ModelSpec | None) -> tuple[Finding, ...]:
    """All of them, the most open first."""
    return (
        *_network(given),
        *_key(given),
        *_origins(given),
        *_endpoints(given),
        *_code(given, model),
        *_requests(given, model),
        *_logs(given),
        *_files(given),
    )


def is_guarded(given: Asked) -> bool:
    """Whether a key is asked for: --api-key beats the variable, and empty keys are dropped (register.py:33)."""
    keys = [s.value or "" for s in given.reading.settings if s.flag and s.flag.name == _KEY]
    return bool(keys[-1].strip()) if keys else bool(given.variable(_KEY_VARIABLE).strip())


def is_local(given: Asked) -> bool:
    """Whether only this host reaches the server."""
    host = given.reading.value(_HOST) or ""
    return host.startswith(_LOOPBACK) or bool(given.value("--uds"))


def _network(given: Asked) -> Iterator[Finding]:
    """No --host is all interfaces: vLLM binds to "" (launcher.py:378)."""
    if is_local(given) or is_guarded(given):
        return
    host = given.reading.value(_HOST)
    where = f"--host {host}" if host else "without --host vLLM listens on all interfaces, and"
    text = f"{where} has no key: whoever reaches the port uses the server" if host else f"{where} no key is set"
    hint = f"set {_KEY_VARIABLE}, or --host 127.0.0.1 behind a proxy"
    yield mend.said("SEC-01", text, given, _HOST, hint=hint, level="" if host else NOTE)


def _key(given: Asked) -> Iterator[Finding]:
    setting = given.last(_KEY)
    if setting is None:
        return
    if not (setting.value or "").strip():
        text = f"{_KEY} is empty: vLLM drops empty keys, and nothing is guarded"
        yield mend.said("SEC-13", text, given, _KEY, hint=f"set {_KEY_VARIABLE}")
    elif given.reading.invocation.place == "command line" or setting.word not in given.reading.invocation.joined:
        text = f"the value of {_KEY} is shown to every user of the host by `ps`"
        hint = f"set {_KEY_VARIABLE} from a secret or a file instead"
        yield mend.said("SEC-04", text, given, _KEY, hint=hint)


def _origins(given: Asked) -> Iterator[Finding]:
    """0.24 to 0.32 allow any origin by default; which release turned it off is read from the surface."""
    flag = given.surface.flags.get(_ORIGINS)
    value = given.reading.value(_ORIGINS)
    if value is not None and "*" in value:
        text = f"{_ORIGINS} *: any web page that somebody opens may call the server from their browser"
        yield mend.said(
            "SEC-05", text, given, _ORIGINS, hint="name the pages' origins", level=NOTE if is_guarded(given) else ""
        )
    elif value is None and flag is not None and flag.default == ["*"] and not is_guarded(given):
        text = f"vLLM {given.surface.version} lets any web page call the server by default, and no key is set"
        yield mend.said("SEC-05", text, given, _ORIGINS, hint=f"{_ORIGINS} '[]', or a key", level=NOTE)


def _endpoints(given: Asked) -> Iterator[Finding]:
    """What is served outside of the paths that a key guards."""
    guarded = f"a key guards {_GUARDED[given.surface.at_least(0, 33)]} only"
    if given.set(_DEV):
        text = f"{_DEV}=1 serves /collective_rpc, /reset_prefix_cache, /server_info and more to anybody: {guarded}"
        yield mend.said("SEC-03", text, given, _DEV, hint="leave it out in production")
    if given.last("--profiler-config"):
        text = f"--profiler-config serves /start_profile and /stop_profile to anybody: {guarded}"
        yield mend.said("SEC-06", text, given, "--profiler-config", hint="leave it out in production")
    if given.set("VLLM_ALLOW_RUNTIME_LORA_UPDATING"):
        name = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
        text = f"{name} lets every request for /v1/load_lora_adapter load weights from a path or a repository"
        yield mend.said("SEC-09", text, given, name, hint="for trusted callers only")
    if given.set("VLLM_ALLOW_INSECURE_SERIALIZATION"):
        name = "VLLM_ALLOW_INSECURE_SERIALIZATION"
        text = f"{name} accepts pickle between processes: who can send a message there runs code"
        yield mend.said("SEC-08", text, given, name, hint="leave it out")


def _code(given: Asked, model: ModelSpec | None) -> Iterator[Finding]:
    if not given.on(_TRUST):
        return
    from vllm_advisor.vllm.families import repository_code  # noqa: PLC0415  only where it is asked

    known = repository_code(model) if model else None
    pinned = " at a fixed --revision" if not given.last("--revision") else ""
    if model is None or known:
        what = f" ({known[0]})" if known else ""
        text = f"{_TRUST} runs Python from the model's repository on this host{what}"
        yield mend.said("SEC-02", text, given, _TRUST, hint=f"read that code, and serve it{pinned}")
    else:
        text = f"{_TRUST} lets the repository run Python on this host; we know of nothing in {model.name} that needs it"
        yield mend.said("SEC-02", text, given, _TRUST, hint="leave it out if the server starts without")


_FROM_REQUESTS = (
    ("--trust-request-chat-template", "requests bring Jinja templates that the server renders"),
    ("--trust-request-mm-kwargs", "requests set arguments of the multimodal processor"),
)


def _requests(given: Asked, model: ModelSpec | None) -> Iterator[Finding]:
    for name, what in _FROM_REQUESTS:
        if given.on(name):
            yield mend.said("SEC-11", f"{name}: {what}", given, name, hint="for trusted callers only")
    path = given.value("--allowed-local-media-path")
    if path:
        wide = ": that is every file" if path.strip() == "/" else ""
        text = f"--allowed-local-media-path {path} lets requests read files below it from the host{wide}"
        yield mend.said("SEC-07", text, given, "--allowed-local-media-path", hint="a folder that holds nothing else")
    many = model is not None and bool(set(model.modalities) - {"text"})
    if (
        many
        and not is_local(given)
        and not given.on("--language-model-only")
        and not given.last("--allowed-media-domains")
    ):
        text = "requests name images, audio or video by address, and the server fetches any, inside your network too"
        yield mend.said(
            "SEC-12", text, given, "--allowed-media-domains", hint="name them: --allowed-media-domains example.org"
        )


def _logs(given: Asked) -> Iterator[Finding]:
    if given.on("--enable-log-requests"):
        what = (
            "prompts and answers go"
            if given.on("--enable-log-outputs")
            else "requests, with their prompts at debug level, go"
        )
        yield mend.said("SEC-10", f"--enable-log-requests: {what} to the log", given, "--enable-log-requests")
    name = "VLLM_DEBUG_LOG_API_SERVER_RESPONSE"
    if given.set(name):
        yield mend.said("SEC-10", f"{name}: answers go to the log", given, name, hint="for debugging only")


_SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", _KEY_VARIABLE, "AWS_SECRET_ACCESS_KEY")


def _files(given: Asked) -> Iterator[Finding]:
    """A secret written into a script or manifest, where others read it; its value is not repeated."""
    if given.reading.invocation.place == "command line":
        return
    for name in _SECRETS:
        value = given.variable(name)
        if value.strip() and not any(mark in value for mark in ("$", "{{", "<", "`")):
            text = f"the value of {name} stands in {given.reading.invocation.place}"
            yield mend.said("SEC-14", text, given, name, hint="from a secret, or from the caller's environment")
