"""Real prompts of varied lengths: pieces of a text, cut where the tokenizer says, from a few tokens to thousands.

The text that comes with the tuner is our own (see `data/`); a user's own prompts are better, for they look like what
the server will see.
"""

from __future__ import annotations

import itertools
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from vllm_advisor.errors import BadInput
from vllm_tuner import kernels


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Encode = Callable[[str], list[int]]

LENGTHS = (16, 64, 256, 1024, 32, 128, 512, 2048)
SECTION = "=== "


def bundled() -> dict[str, str]:
    """The tuner's own text by section: prose, dialogue, code, numbers, other languages. No tokenizer needed."""
    text = (files("vllm_tuner") / "data" / "text.txt").read_text(encoding="utf-8")
    parts = text.split(f"\n{SECTION}")[1:]  # what stands before the first section says where the text is from
    return {name: body.strip() + "\n" for name, _, body in (part.partition("\n") for part in parts)}


def tokenizer(folder: Path) -> Encode:
    """The model's own, from tokenizer.json. Raises BadInput without one, UsageError without the library."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise BadInput(f"{folder} has no tokenizer.json", "give token ids: --prompts FILE with lines of JSON arrays")
    library: Any = kernels.needed("tokenizers")
    loaded = library.Tokenizer.from_file(str(path))
    return lambda text: list(loaded.encode(text, add_special_tokens=False).ids)


def of_text(encode: Encode, *, budget: int, longest: int, bos: int | None = None) -> list[list[int]]:
    """Pieces of the bundled text, `budget` tokens in all, none longer than `longest`; long ones start over."""
    ids = [token for body in bundled().values() for token in encode(body)]
    endless = itertools.cycle(ids)
    prompts: list[list[int]] = []
    left = budget
    for length in itertools.cycle(LENGTHS):
        wanted = min(length, longest, left)
        if wanted < 2:  # one token predicts nothing
            return prompts
        first = [] if bos is None else [bos]
        prompts.append([*first, *itertools.islice(endless, wanted - len(first))])
        left -= wanted
    return prompts


def of_file(path: Path, encode: Callable[[], Encode], *, budget: int, longest: int) -> list[list[int]]:
    """A user's prompts, a line each: text, {"prompt": "…"}, or a JSON array of token ids (no tokenizer needed)."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    prompts: list[list[int]] = []
    for number, line in enumerate(filter(str.strip, lines), 1):
        ids = _ids(path, number, line, encode)[: min(longest, budget)]
        budget -= len(ids)
        prompts += [ids] if len(ids) > 1 else []
    if not prompts:
        raise BadInput(f"{path} has no prompt of two tokens or more")
    return prompts


def _ids(path: Path, number: int, line: str, encode: Callable[[], Encode]) -> list[int]:
    value = _json(line)
    if isinstance(value, list) and all(isinstance(token, int) and token >= 0 for token in value):
        return value
    if isinstance(value, dict):
        value = value.get("prompt")
    if not isinstance(value, str):
        raise BadInput(f"{path}:{number} is no prompt", 'a line is text, {"prompt": "…"} or an array of token ids')
    return encode()(value)


def _json(line: str) -> Any:
    if line.lstrip()[:1] not in ("{", "["):
        return line
    try:
        return json.loads(line)
    except ValueError:
        return line


def check_ids(prompts: Sequence[Sequence[int]], vocab: int) -> None:
    """Raises BadInput for a token that the model does not have."""
    largest = max(token for prompt in prompts for token in prompt)
    if largest >= vocab:
        raise BadInput(f"token {largest} in a vocabulary of {vocab}", "is this the model's own tokenizer?")
