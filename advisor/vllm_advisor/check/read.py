"""From what somebody wrote to Invocations: a line of words, or a file in any form that people deploy with.

Nothing is executed and nothing is fetched; of other files only those are read that a command names itself
(`--config FILE`, `env_file`), next to the file or where the advisor was called.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_advisor.check import start
from vllm_advisor.check.parse import start_length
from vllm_advisor.check.word import Word
from vllm_advisor.errors import BadInput


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vllm_advisor.check.invocation import Invocation

_MOST_BYTES = 4 << 20
_YAML = frozenset((".yaml", ".yml", ".json"))
_UNIT = r"(?m)^\[Service\]\s*$"
_LOOKS_YAML = r"(?m)^(?:services|apiVersion|x-[\w-]+)\s*:"
HINT = "give `vllm serve MODEL …`, `python -m vllm.entrypoints.openai.api_server …` or `docker run … IMAGE …`"


def command_line(words: Sequence[str]) -> Invocation:
    """One command as a shell has already split it, NAME=VALUE words first.

    Raises BadInput where no vLLM server starts in it, or more than one.
    """
    try:
        found = list(start.lines_of([Word(text, 0) for text in words]))
    except ValueError as error:
        raise BadInput(f"the command inside the command: {error}", "close the quote") from None
    if not found and (any(w.startswith("-") for w in words[:1]) or _is_model(words)):
        raise BadInput("the command does not start with what starts vLLM", f"write: vllm serve {' '.join(words[:3])} …")
    if len(found) != 1:
        what = "no vLLM server starts in it" if not found else f"{len(found)} servers start in it"
        raise BadInput(f"cannot read the command: {what}", HINT if not found else "give one of them, or the file")
    return _joined(found[0].at("command line"), Path())


def _is_model(words: Sequence[str]) -> bool:
    return bool(words) and words[0].count("/") == 1 and len(words) > 1 and words[1].startswith("-")


def file(path: Path) -> tuple[Invocation, ...]:
    """Every vLLM server of a shell script, Compose file, Kubernetes manifest, systemd unit or vLLM `--config` YAML.

    Raises BadInput where the file cannot be read, or starts none.
    """
    text = _text(path)
    try:
        found = _invocations(path, text)
    except ValueError as error:
        raise BadInput(f"{path}: {error}", "it is neither a script nor YAML that can be read") from None
    except RecursionError:
        raise BadInput(f"{path}: nested too deeply to be read") from None
    if not found:
        raise BadInput(f"{path}: no vLLM server starts in it", HINT)
    return tuple(_joined(one, path.parent) for one in found)


def text(content: str) -> tuple[Invocation, ...]:
    """The same of a text that was pasted; () where no server starts in it. Files that it names are looked for here.

    Raises BadInput where it cannot be read.
    """
    here = Path("pasted text")
    try:
        return tuple(_joined(one, Path()) for one in _invocations(here, content))
    except ValueError as error:
        raise BadInput(f"cannot read the text: {error}", HINT) from None
    except RecursionError:
        raise BadInput("the text is nested too deeply to be read") from None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            raw = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:  # a name with a null byte
        raise BadInput("the file's name cannot be used") from None
    if len(raw) > _MOST_BYTES:
        raise BadInput(f"{path} is larger than {_MOST_BYTES >> 20} MiB", "give the script or manifest itself")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise BadInput(f"{path} is no text file", "give a script, a Compose file, a manifest or a YAML config")
    return text


def _invocations(path: Path, text: str) -> list[Invocation]:
    if path.suffix == ".service" or re.search(_UNIT, text):
        from vllm_advisor.check import read_unit  # noqa: PLC0415

        return read_unit.invocations(path, text)
    if path.suffix.lower() in _YAML or re.search(_LOOKS_YAML, text):
        from vllm_advisor.check import read_yaml  # noqa: PLC0415

        return read_yaml.invocations(path, text)
    return [line.at(place(path, line.words[0].line)) for line in start.script(text)]


def place(path: Path, line: int) -> str:
    """`serve.sh:12`."""
    return f"{path}:{line}" if line else str(path)


def _joined(invocation: Invocation, folder: Path) -> Invocation:
    """With the options of its own `--config FILE` in front of its own, as vLLM puts them; else as it is.

    vLLM reads the file only where it is two words and ends in .yaml or .yml (utils/argparse_utils.py parse_args).
    """
    argv = invocation.argv
    at = argv.index("--config") if "--config" in argv[:-1] else -1
    if at < 0 or argv.count("--config") > 1:
        return invocation
    named = Path(argv[at + 1])
    found = next((p for p in _candidates(named, folder) if p.is_file()), None)
    if found is None or named.suffix not in (".yaml", ".yml"):
        return invocation
    from vllm_advisor.check import read_yaml  # noqa: PLC0415

    try:
        config = read_yaml.config_words(_text(found))
    except ValueError as error:
        raise BadInput(f"{found}: {error}", "mend the file that --config names") from None
    return _spliced(invocation, at, config, str(found))


def _candidates(named: Path, folder: Path) -> Iterable[Path]:
    try:
        named.is_file()
    except (OSError, ValueError):
        return ()
    return (named, folder / named)


def _spliced(invocation: Invocation, at: int, config: Sequence[tuple[Word, bool]], name: str) -> Invocation:
    """`vllm serve [MODEL] CONFIG… rest`, without `--config FILE`."""
    argv, lines = invocation.argv, invocation.lines
    kept = [i for i in range(len(argv)) if i not in (at, at + 1)]
    head = _head(argv)
    before, after = [i for i in kept if i < head], [i for i in kept if i >= head]
    words = [word for word, _ in config]
    joined = range(len(before), len(before) + len(words))
    return invocation._replace(
        argv=(*(argv[i] for i in before), *(w.text for w in words), *(argv[i] for i in after)),
        lines=(*(lines[i] for i in before), *(w.line for w in words), *(lines[i] for i in after)),
        config=name,
        joined=tuple(joined),
        falses=tuple(i for i, (_, false) in zip(joined, config, strict=True) if false),
    )


def _head(argv: Sequence[str]) -> int:
    """Where vLLM puts a config's options: behind `vllm serve` and the model, if that stands first."""
    start_words = start_length(argv)
    has_model = len(argv) > start_words and not argv[start_words].startswith("-")
    return start_words + (1 if has_model and argv[start_words - 1] == "serve" else 0)
