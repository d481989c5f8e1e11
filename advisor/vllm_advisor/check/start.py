"""Where vLLM starts in a line of words: after variables and wrappers, inside `docker run`, inside `sh -c "…"`.

Whatever stands before the start is passed over, except NAME=VALUE words, which are its environment: so `sudo -E env`,
`numactl`, `nohup`, `uv run` and `srun` need no list of their own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.check.invocation import Invocation
from vllm_advisor.check.word import Word, assignment


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SERVERS = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
CLI = "vllm.entrypoints.cli.main"
_CONTAINER_TOOLS = frozenset(("docker", "podman", "nerdctl"))
# Options of `docker run` that take no value (docs.docker.com/reference/cli/docker/container/run); all others take one.
_BARE_OPTIONS = frozenset((
    "--detach", "--interactive", "--tty", "--rm", "--privileged", "--init", "--read-only", "--publish-all", "--quiet",
    "--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--disable-content-trust", "--help", "--replace",
))  # fmt: skip
_BARE_LETTERS = frozenset("ditPq")
_SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ash"))
_TALKERS = frozenset(("echo", "printf", "grep", "pgrep", "pkill", "cat", "log", "logger", "which", "type"))
# Patterns are text: compiling all of them at import costs milliseconds, and most commands need none.
_TAG = r":v?(\d+\.\d+(?:\.\d+)?)(?![\d.])[^/]*$"
_MENTION = r"\bvllm\s+serve\b|\bvllm\.entrypoints\."


class Line(NamedTuple):
    """What one line of words starts: the words from vLLM's own start on, its variables, image version and devices."""

    words: tuple[Word, ...]
    env: tuple[tuple[str, str], ...] = ()
    version: str | None = None
    devices: int | None = None
    unexported: tuple[tuple[str, str], ...] = ()

    def at(self, place: str) -> Invocation:
        """The Invocation that stands at `place`."""
        argv, lines = tuple(w.text for w in self.words), tuple(w.line for w in self.words)
        env = tuple(dict(self.env).items())
        unexported = tuple(pair for pair in self.unexported if pair[0] not in dict(env))
        return Invocation(argv, env, place, self.version, self.devices or visible(env), lines, unexported=unexported)


def visible(env: tuple[tuple[str, str], ...]) -> int | None:
    """How many devices the variables leave visible, None where none says so."""
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        value = dict(env).get(name, "")
        if value and all(part.strip() for part in value.split(",")) and "$" not in value and value != "-1":
            return len(value.split(","))
    return None


def lines_of(words: Sequence[Word], env: tuple[tuple[str, str], ...] = ()) -> Iterator[Line]:
    """Every vLLM server that a line of words starts: none, one, or several inside a quoted script.

    Raises ValueError for a quote that is never closed in such a script.
    """
    if (image := _image(words)) is not None:
        yield from _container(words, image)
    elif (start := start_of(words)) is not None:
        yield Line(tuple(words[start:]), env + assigned(words[:start]))
    else:
        yield from _nested(words, env)


def start_of(words: Sequence[Word]) -> int | None:
    """The index of `vllm` in `vllm serve`, or of the interpreter in `python -m vllm.entrypoints…`; None: neither."""
    if words and words[0].text in _TALKERS:
        return None
    for index, (word, following) in enumerate(zip(words, [w.text for w in words[1:]], strict=False)):
        if _name(word) == "vllm" and following == "serve":
            return index
        if word.text == "-m" and following in SERVERS:
            return max(index - 1, 0)
        if word.text == "-m" and following == CLI and any(w.text == "serve" for w in words[index + 2 : index + 3]):
            return max(index - 1, 0)
    return None


def _name(word: Word) -> str:
    """The last part of a path."""
    return word.text.rpartition("/")[2]


def assigned(words: Sequence[Word]) -> tuple[tuple[str, str], ...]:
    """NAME=VALUE words, also as `-eNAME=VALUE` and `--env=NAME=VALUE`."""
    found = []
    for word in words:
        given = assignment(word.text) or assignment(word.text.removeprefix("--env=").removeprefix("-e").lstrip("="))
        if given and not given.adds:
            found.append((given.name, given.value))
    return tuple(found)


def _image(words: Sequence[Word]) -> int | None:
    """The index of the image in `docker run … IMAGE …`; None where it is no such command."""
    tools = [i for i, w in enumerate(words) if _name(w) in _CONTAINER_TOOLS]
    runs = [i for i, w in enumerate(words) if w.text in ("run", "create") and tools and i > tools[0]]
    if not runs or words[0].text in _TALKERS:
        return None
    index = runs[0] + 1
    while index < len(words) and words[index].text.startswith("-"):
        index += 1 if _is_bare(words[index].text) else 2
    return index if index < len(words) else None


def _is_bare(option: str) -> bool:
    if option.startswith("--"):
        return "=" in option or option in _BARE_OPTIONS
    letters = option[1:]
    return set(letters) <= _BARE_LETTERS or len(letters) > 1


def _container(words: Sequence[Word], image: int) -> Iterator[Line]:
    options, rest = words[:image], words[image + 1 :]
    own = env_of_options(options)
    entry = _option(options, "--entrypoint")
    started = [Word(entry, words[image].line)] if entry else []
    found = container(words[image], [*started, *rest], own, entrypoint=bool(entry))
    devices = _gpus(_option(options, "--gpus"))
    yield from (line._replace(devices=devices) for line in found)


def env_of_options(options: Sequence[Word]) -> tuple[tuple[str, str], ...]:
    """`-e NAME=VALUE` of `docker run`; labels, volumes and ports are no variables."""
    found: list[tuple[str, str]] = []
    for before, word in zip(["", *(w.text for w in options)], options, strict=False):
        if before in ("-e", "--env") or word.text.startswith(("--env=", "-e")):
            found += assigned([word])
    return tuple(found)


def container(
    image: Word, words: Sequence[Word], env: tuple[tuple[str, str], ...], *, entrypoint: bool = False
) -> Iterator[Line]:
    """What a container of that image runs: `words` as they are, or as arguments of the image's own entry point.

    vLLM's images (vllm-openai, -rocm, -cpu) start `vllm serve`; others start nothing that we know of.
    """
    version = version_of(image.text)
    found = list(lines_of(words, env))
    if not found and not entrypoint and serves(image.text):
        own = (Word("vllm", image.line), Word("serve", image.line))
        found = [Line((*own, *words), env)]
    yield from (line._replace(version=version) for line in found)


def serves(image: str) -> bool:
    """Whether the entry point of the image is vLLM's server."""
    name = image.rpartition("/")[2].partition(":")[0].partition("@")[0]
    return "vllm-openai" in name or "vllm-cpu" in name


def version_of(image: str) -> str | None:
    """`0.24.0` of `vllm/vllm-openai:v0.24.0-cu129`; None for `latest`, a digest or another project's image."""
    match = re.search(_TAG, image.partition("@")[0])
    return match[1] if match and "vllm" in image and not image.startswith("rocm/") else None


def _option(options: Sequence[Word], name: str) -> str:
    for word, following in zip(options, [*(w.text for w in options[1:]), ""], strict=True):
        if word.text == name:
            return following
        if word.text.startswith(f"{name}="):
            return word.text.partition("=")[2]
    return ""


def _gpus(text: str) -> int | None:
    """`2`, `device=0,1`, `"device=0,1"`, `all` of `--gpus`."""
    text = text.strip("\"'")
    if text.isdecimal():
        return int(text[:6])
    listed = text.partition("device=")[2]
    return len(listed.split(",")) if listed else None


def _nested(words: Sequence[Word], env: tuple[tuple[str, str], ...]) -> Iterator[Line]:
    """`sh -c "…"`, `tmux new -d "…"`, `ssh host "…"`: a word that is a script itself."""
    if words and words[0].text in _TALKERS:
        return
    for index, word in enumerate(words):
        after_c = index > 0 and re.fullmatch(r"-[a-z]*c", words[index - 1].text)
        if (after_c or " " in word.text) and re.search(_MENTION, word.text):
            yield from script(word.text, word.line, env + assigned(words[:index]))


def script(text: str, line: int = 1, env: tuple[tuple[str, str], ...] = ()) -> Iterator[Line]:
    """Every server that a shell text starts. Raises ValueError for a quote that is never closed."""
    from vllm_advisor.check.words import commands  # noqa: PLC0415  only scripts need the grammar

    for command in commands(text, line, env):
        found = lines_of(command.words, command.exported)
        yield from (one._replace(unexported=one.unexported or command.unexported) for one in found)
