"""YAML that people deploy with: Compose, Kubernetes, vLLM's own `--config`, our JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from vllm_advisor.check import start
from vllm_advisor.check.expansion import substitute
from vllm_advisor.check.invocation import Invocation
from vllm_advisor.check.read_unit import environment_file
from vllm_advisor.check.tree import Branch, Leaf, Tree, documents, plain
from vllm_advisor.check.word import Word
from vllm_advisor.check.words import commands


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
_KUBERNETES_VARIABLE = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)")
_HELM_HINT = "a template must be rendered first (helm template, kustomize build)"


def invocations(path: Path, text: str) -> list[Invocation]:
    """Every server of every document. Raises ValueError where it is no YAML."""
    try:
        found = list(documents(text))
    except ValueError as error:
        raise ValueError(f"{error}; {_HELM_HINT}" if "{{" in text else str(error)) from None
    return [one for document in found if isinstance(document, Branch) for one in _of_document(path, document)]


def _of_document(path: Path, document: Branch) -> Iterator[Invocation]:
    if isinstance(document.get("argv"), Branch):
        yield from _ours(path, document)
    elif isinstance(document.get("services"), Branch):
        for name, service in document.branch("services").items:
            if isinstance(service, Branch):
                yield from _service(path, name, service)
    elif document.get("apiVersion") or document.get("kind"):
        yield from _manifest(path, document)
    elif _is_config(document):
        yield _config(path, document)


def _ours(path: Path, document: Branch) -> Iterator[Invocation]:
    """What `advisor recommend --format json` writes."""
    words = [Word(v.text, v.line) for v in document.branch("argv").values() if isinstance(v, Leaf)]
    env = tuple((k, v.text) for k, v in document.branch("env").items if isinstance(v, Leaf))
    yield from (line.at(str(path)) for line in start.lines_of(words, env))


# Compose


def _service(path: Path, name: str, service: Branch) -> Iterator[Invocation]:
    line = service.line
    image = Word(_composed(service.text("image")), line)
    entry, command = (_compose_words(service.get(key)) for key in ("entrypoint", "command"))
    env = tuple(_compose_environment(path, service).items())
    for found in start.container(image, [*entry, *command], env, entrypoint=bool(entry)):
        yield found._replace(devices=_reserved(service)).at(f"{path}: services.{name}")


def _composed(text: str) -> str:
    """Compose's own variables: a default is taken, the rest stays; `$$` is a dollar."""
    return substitute(text.replace("$$", "\0"), {}).replace("\0", "$")


def _compose_words(value: Tree | None) -> list[Word]:
    """A list as it is, a string split as a shell would."""
    if isinstance(value, Branch):
        return [Word(_composed(v.text), v.line) for v in value.values() if isinstance(v, Leaf)]
    if not isinstance(value, Leaf):
        return []
    return _split(_composed(value.text), value.line + value.block)


def _split(text: str, line: int) -> list[Word]:
    """The words of a one-line command; a semicolon or an ampersand means nothing to Compose."""
    return [word for command in commands(text.replace("\n", " "), line) for word in command.words]


def _compose_environment(path: Path, service: Branch) -> dict[str, str]:
    env: dict[str, str] = {}
    for name in _texts(service.get("env_file")):
        env |= environment_file(path.parent / name)
    given = service.branch("environment")
    if given.is_list:
        return env | dict(start.assigned([Word(_composed(t), 0) for t in _texts(given)]))
    return env | {k: _composed(v.text) for k, v in given.items if isinstance(v, Leaf) and v.value is not None}


def _texts(value: Tree | None) -> list[str]:
    if isinstance(value, Leaf):
        return [value.text]
    return [v.text for v in value.values() if isinstance(v, Leaf)] if value else []


def _reserved(service: Branch) -> int | None:
    """GPUs of `deploy.resources.reservations.devices`; `count: all` says nothing."""
    total = 0
    for device in service.branch("deploy", "resources", "reservations", "devices").values():
        if isinstance(device, Branch):
            count = device.text("count")
            total += int(count[:6]) if count.isdecimal() else len(device.branch("device_ids").items)
    return total or None


# Kubernetes


def _manifest(path: Path, document: Branch) -> Iterator[Invocation]:
    """Wherever a list of containers stands: Pod, Deployment, LeaderWorkerSet, InferenceService, a List of them."""
    name = document.text("metadata", "name")
    label = "/".join(part for part in (document.text("kind"), name) if part)
    for key, value in _walk(document):
        if key in ("containers", "initContainers") and isinstance(value, Branch):
            for container in value.values():
                if isinstance(container, Branch):
                    yield from _container(path, label, container)


def _walk(tree: Tree) -> Iterator[tuple[str, Tree]]:
    if isinstance(tree, Branch):
        for key, value in tree.items:
            yield key, value
            yield from _walk(value)


def _container(path: Path, label: str, container: Branch) -> Iterator[Invocation]:
    env = {
        item.text("name"): item.text("value")
        for item in container.branch("env").values()
        if isinstance(item, Branch) and isinstance(item.get("value"), Leaf)
    }
    entry, args = ([_expanded(v, env) for v in _leaves(container.get(key))] for key in ("command", "args"))
    where = f"{path}: {label} {container.text('name')}".rstrip()
    image = Word(container.text("image"), container.line)
    pairs = tuple(env.items())
    for found in start.container(image, [*entry, *args], pairs, entrypoint=bool(entry)):
        yield found._replace(devices=_gpus(container)).at(where)


def _leaves(value: Tree | None) -> list[Leaf]:
    if isinstance(value, Leaf):
        return [value]
    return [v for v in value.values() if isinstance(v, Leaf)] if value else []


def _expanded(leaf: Leaf, env: dict[str, str]) -> Word:
    """`$(NAME)` is Kubernetes' own; a block's text begins one line below its sign."""
    text = _KUBERNETES_VARIABLE.sub(lambda m: env.get(m[1], m[0]), leaf.text)
    return Word(text, leaf.line + leaf.block)


def _gpus(container: Branch) -> int | None:
    for kind in ("limits", "requests"):
        for resource in _GPU_RESOURCES:
            count = container.text("resources", kind, resource)
            if count.isdecimal():
                return int(count[:6])
    return None


# vLLM's own config


def _is_config(document: Branch) -> bool:
    """Whether a key is an option of some vLLM: then the mapping is read as `--config`."""
    from vllm_advisor.vllm import surface  # noqa: PLC0415

    newest = surface.load("latest")
    return not document.is_list and any(newest.flag(f"--{key}") for key, _ in document.items if key)


def _config(path: Path, document: Branch) -> Invocation:
    words = list(_options(document))
    own = (("vllm", 0), ("serve", 0))
    argv, lines = zip(*own, *((w.text, w.line) for w, _ in words), strict=True)
    falses = tuple(i for i, (_, false) in enumerate(words, len(own)) if false)
    joined = tuple(range(len(own), len(argv)))
    return Invocation(argv, (), str(path), lines=lines, config=str(path), joined=joined, falses=falses)


def config_words(text: str) -> list[tuple[Word, bool]]:
    """The options of a config file as words, and whether each is an `x: false` written `--no-x`.

    As vLLM does it (utils/argparse_utils.py load_config_file). Raises ValueError where it is no mapping.
    """
    found = list(documents(text))
    if len(found) != 1 or not isinstance(found[0], Branch) or found[0].is_list:
        raise ValueError("a vLLM config is one mapping of options")
    return list(_options(found[0]))


def _options(document: Branch) -> Iterator[tuple[Word, bool]]:
    for key, value in document.items:
        line = value.line
        if isinstance(value, Branch):
            yield from ((word, False) for word in _compound(key, value))
        elif isinstance(value.value, bool):
            yield Word(f"--{key}" if value.value else f"--no-{key}", line), not value.value
        else:
            yield Word(f"--{key}", line), False
            yield Word(str(value.value), line), False


def _compound(key: str, value: Branch) -> Iterator[Word]:
    """A list is several values, none where it is empty; a mapping is JSON."""
    if not value.is_list:
        yield Word(f"--{key}", value.line)
        yield Word(json.dumps(plain(value), default=str), value.line)
    elif value.items:
        yield Word(f"--{key}", value.line)
        yield from (Word(str(plain(item)), item.line) for item in value.values())
