"""What `advisor migrate` says of a command: one item a change, and the whole answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from vllm_advisor.check.finding import Finding
    from vllm_advisor.check.invocation import Invocation
    from vllm_advisor.hardware import Node
    from vllm_advisor.model import ModelSpec
    from vllm_advisor.vllm.surface import Surface

# What is written otherwise, what is left out, what is kept though it may not work, what the version does otherwise.
TRANSLATED, DROPPED, KEPT, DEFAULT, BEHAVIOUR, DEPRECATED = (
    "translated", "dropped", "kept", "default", "behaviour", "deprecated",
)  # fmt: skip


class Move(NamedTuple):
    """What is asked: the command, from which version to which, and what is known of device and model."""

    before: Invocation
    old: Surface
    new: Surface
    node: Node | None = None
    model: ModelSpec | None = None


class Item(NamedTuple):
    """One change for one command. `carried` False: something that was asked for is lost, and `text` says what.

    `subject` is the flag, variable or matter; `before` and `after` are words of the command or what is done.
    """

    kind: str
    subject: str
    before: str
    after: str
    text: str
    source: str
    carried: bool = True


class Memory(NamedTuple):
    """The same command's memory under one version, of the rank that limits; bytes, tokens, requests.

    `request_bytes` is what one request of max_model_len takes of the KV cache. `graphs` is what is taken off first.
    """

    version: str
    verdict: str
    weights: int
    activation: float
    graphs: float
    kv_cache: float
    kv_tokens: int
    max_concurrency: float
    request_bytes: float
    max_num_batched_tokens: int
    max_num_seqs: int


class Migration(NamedTuple):
    """The answer. `after` is the new command; `refused`: what the new version still refuses in it.

    `memory` holds the old and the new version's, and a third where the default of the tokens a step changed: the new
    version's with the old default. () where model or device is not known; `notes` says what was assumed.
    """

    move: Move
    after: Invocation
    items: tuple[Item, ...]
    refused: tuple[Finding, ...] = ()
    memory: tuple[Memory, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all that was asked for is carried over, and the new version refuses nothing."""
        return all(item.carried for item in self.items) and not self.refused
