"""The same container with other arguments: the body of its creation, and what of it an engine did not keep.

An inspection is not what a creation takes. Docker's comes close; Podman's prints limits under other names, fills in
what may not be asked for, and leaves out devices. What still differs after the creation is found by `lost`.
"""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

from vllm_advisor.errors import EngineError
from vllm_tuner.daemon.units.managed import PROFILE


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.plan import LaunchCommand

_ALONE = ("host", "none", "private", "slirp4netns", "pasta")  # network modes without a network to join
# Not compared: the arguments, what an engine names anew, and links, which are spelt with the container's own name.
_OURS = frozenset({"Cmd", "Entrypoint", "Image", "Env", "Labels", "Hostname", "Links", "Volumes"})
# Podman prints them in another form than it was given, or not at all.
_PODMANS = frozenset({"LogConfig", "ContainerIDFile", "ConsoleSize", "StopSignal", "DeviceRequests", "IpcMode"})

# The label of ours that holds, as JSON, what it replaced: the own container may be pruned away while it is stopped.
OWN = "ADVISOR_OWN"
_REPLACED, _UNTOLD = ("Entrypoint", "Cmd", "Env"), ("RestartPolicy", "DeviceRequests", "IpcMode")
_RIGHTS = "CgroupPermissions"
_PARTS = ("HostConfig", "NetworkingConfig")

_Body = dict[str, Any]
_FORM = "the container engine describes the container in an unknown form"
_UNKNOWN = (TypeError, AttributeError, KeyError, ValueError, IndexError)


def made_of(own: Mapping[str, Any], command: LaunchCommand, profile: str, *, podman: bool = False) -> _Body:
    """Everything of the own container, other arguments, and the profile as its label. Raises EngineError.

    An entry point that begins the command stays. Otherwise the program becomes the entry point, because an empty one
    would be taken as the image's.
    """
    try:
        made = {**own["Config"], **_arguments(own["Config"], command)}
        made["Labels"] = {**(own["Config"].get("Labels") or {}), **_labels(own, profile)}
        _without_its_name(made, own)
        host = {**own["HostConfig"], "Binds": _binds(own)}
        ends = networks(own)
        first = dict(list(ends.items())[:1])
        body = {**made, "HostConfig": host, "NetworkingConfig": {"EndpointsConfig": first}}
        return _for_podman(body) if podman else body
    except _UNKNOWN as error:
        raise EngineError(f"{_FORM}: {error!r}") from None


def argv_of(found: Mapping[str, Any]) -> tuple[str, ...]:
    """All words of a container's command, the entry point first. Raises EngineError."""
    try:
        return tuple(str(word) for word in (*_entry(found["Config"]), *(found["Config"].get("Cmd") or [])))
    except _UNKNOWN as error:
        raise EngineError(f"{_FORM}: {error!r}") from None


def _entry(config: Mapping[str, Any]) -> list[Any]:
    """Docker keeps `--entrypoint ""` as one empty word: nothing, and not the image's."""
    return [word for word in config.get("Entrypoint") or [] if word]


def _arguments(config: Mapping[str, Any], command: LaunchCommand) -> _Body:
    entry, argv = _entry(config), list(command.argv)
    begins = bool(entry) and argv[: len(entry)] == entry
    split = len(entry) if begins else 1
    taken = {name for name, _ in command.env}
    kept = [line for line in config.get("Env") or [] if line.partition("=")[0] not in taken]
    env = [*kept, *(f"{name}={value}" for name, value in command.env)]
    return {"Entrypoint": argv[:split], "Cmd": argv[split:], "Env": env}


def _labels(own: Mapping[str, Any], profile: str) -> dict[str, str]:
    """Whose it is, and what the own one came with, should that be removed; none for the own one itself."""
    kept = {key: own["Config"].get(key) for key in _REPLACED} | {key: own["HostConfig"].get(key) for key in _UNTOLD}
    return {PROFILE: profile, OWN: json.dumps(kept, sort_keys=True)} if profile else {}


def own_of(ours: Mapping[str, Any]) -> _Body | None:
    """What a container of ours took the place of, told from its label; None where it tells nothing."""
    try:
        labels = dict(ours["Config"].get("Labels") or {})
        labels.pop(PROFILE, "")
        kept = json.loads(labels.pop(OWN, ""))
        config = {**ours["Config"], **{key: kept[key] for key in _REPLACED}, "Labels": labels}
        host = {**(ours.get("HostConfig") or {}), **{key: kept[key] for key in _UNTOLD}}
    except _UNKNOWN:
        return None
    return {**ours, "Config": config, "HostConfig": host}


def _without_its_name(made: _Body, own: Mapping[str, Any]) -> None:
    """A host name that the engine made up is the old one's; one that was asked for stays."""
    name = str(made.get("Hostname") or "")
    mode = str((own.get("HostConfig") or {}).get("NetworkMode", ""))
    given = name and not str(own.get("Id", "")).startswith(name) and name != socket.gethostname()
    if given and not mode.startswith("container:"):
        return
    made.pop("Hostname", None)
    made["Env"] = [line for line in made["Env"] if line != f"HOSTNAME={name}"]


def _binds(own: Mapping[str, Any]) -> list[str]:
    """Its mounts by path or name; a volume without a name of its own is carried over, not made anew and empty."""
    host = own.get("HostConfig") or {}
    binds = list(host.get("Binds") or [])
    there = {bind.split(":")[1] for bind in binds if ":" in bind}
    there |= {mount.get("Target") for mount in host.get("Mounts") or []}
    volumes = [mount for mount in own.get("Mounts") or [] if mount.get("Type") == "volume"]
    more = [
        (one["Name"], one["Destination"], one.get("RW", True)) for one in volumes if one["Destination"] not in there
    ]
    return [*binds, *(f"{name}:{place}{'' if writable else ':ro'}" for name, place, writable in more)]


def networks(own: Mapping[str, Any]) -> dict[str, _Body]:
    """Networks to join, its main one first, each with what was asked for there and not with what was given out."""
    host, short = own.get("HostConfig") or {}, str(own.get("Id", ""))[:12]
    mode = str(host.get("NetworkMode") or "")
    found = (own.get("NetworkSettings") or {}).get("Networks") or {}
    if mode in _ALONE or mode.startswith(("container:", "ns:")):
        return {}
    order = sorted(found, key=lambda name: (name != mode, name))
    return {name: _ends(found[name] or {}, short, plain=name in ("bridge", "default", "podman")) for name in order}


def _ends(ends: Mapping[str, Any], short: str, *, plain: bool) -> _Body:
    aliases = [alias for alias in ends.get("Aliases") or [] if alias != short]
    asked = {"Aliases": aliases, **{key: ends.get(key) for key in ("IPAMConfig", "Links", "DriverOpts")}}
    return {} if plain else {key: value for key, value in asked.items() if value}


def _for_podman(body: _Body) -> _Body:
    """Podman prints zeros for what was never set, and would take them as set."""
    host = {key: value for key, value in body["HostConfig"].items() if value}
    if host.get("Ulimits"):
        limits = [{**limit, "Name": limit["Name"].removeprefix("RLIMIT_").lower()} for limit in host["Ulimits"]]
        host["Ulimits"] = limits
    if host.get("IpcMode") == "host":  # its size is then the host's, and must not be asked for
        host.pop("ShmSize", None)
    if host.get("Devices"):  # printed without their rights
        host["Devices"] = [{**one, _RIGHTS: one.get(_RIGHTS) or "rwm"} for one in host["Devices"]]
    host.pop("Runtime", None)
    made = {key: value for key, value in body.items() if value or key in ("Cmd", "Entrypoint")}
    return {**made, "HostConfig": host}


def lost(
    body: Mapping[str, Any], made: Mapping[str, Any], own: Mapping[str, Any], *, podman: bool = False
) -> tuple[str, ...]:
    """What was asked for and is not there in the container that was made of it, by name. Raises EngineError."""
    try:
        return tuple(_lost(body, made, own, _OURS | _PODMANS if podman else _OURS))
    except _UNKNOWN as error:
        raise EngineError(f"{_FORM}: {error!r}") from None


def _lost(
    body: Mapping[str, Any], made: Mapping[str, Any], own: Mapping[str, Any], ignored: frozenset[str]
) -> list[str]:
    there = {**made["Config"], **(made.get("HostConfig") or {})}
    asked = {**{key: value for key, value in body.items() if key not in _PARTS}, **body["HostConfig"]}
    differ = [name for name, value in asked.items() if name not in ignored and not _kept(value, there.get(name))]
    env = [line.partition("=")[0] for line in body["Env"] if line not in (made["Config"].get("Env") or [])]
    mounts = [str(mount[-1]) for mount in _mounts(own) - _mounts(made)]
    joined = [name for name in networks(own) if name not in networks(made)]
    kinds = (("", differ), ("variable ", env), ("mount ", mounts), ("network ", joined))
    return [f"{kind}{name}" for kind, names in kinds for name in names]


def _mounts(found: Mapping[str, Any]) -> set[tuple[Any, ...]]:
    seen = found.get("Mounts") or []
    return {(one.get("Type"), one.get("Source"), one.get("RW"), one.get("Destination")) for one in seen}


def _kept(asked: object, there: object) -> bool:
    """Whether all that was asked for stands there: an engine may add to it, and order it."""
    if not asked:  # nothing was asked for
        return True
    if isinstance(asked, dict):
        have = there if isinstance(there, dict) else {}
        return all(_kept(value, have.get(key)) for key, value in asked.items() if have.get(key) or key != _RIGHTS)
    if isinstance(asked, list):
        have_all = there if isinstance(there, list) else []
        return all(any(_kept(value, other) for other in have_all) for value in asked)
    return asked == there or (isinstance(asked, str) and asked.lower() == str(there).lower().removeprefix("rlimit_"))
