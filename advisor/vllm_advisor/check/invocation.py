"""One `vllm serve` as somebody wrote it, and what one vLLM version reads in it: the values that pass between rooms."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    from vllm_advisor.vllm.surface import Flag


class Invocation(NamedTuple):
    """A command with its environment, before any version has read it.

    `argv` begins with what starts vLLM (`vllm`, `serve`, or `python -m vllm.entrypoints.openai.api_server`), options of
    a YAML config appended as flags. `place` says where it stands, for people: `command line`, `serve.sh:12`,
    `compose.yaml: services.vllm`. `version`: what the image's tag says, if anything. `devices`: GPUs that the file
    asks for, if it does. `lines`: line in the file of each word of argv (0: none known). `config`: the YAML file of
    `--config`, if it could be read, and `joined` the words of argv that came from it. `falses`: the words written
    `--no-x` for an `x: false` of a YAML config. `unexported`: variables of vLLM that a script sets for itself only.
    """

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    place: str = "command line"
    version: str | None = None
    devices: int | None = None
    lines: tuple[int, ...] = ()
    config: str = ""
    joined: tuple[int, ...] = ()
    falses: tuple[int, ...] = ()
    unexported: tuple[tuple[str, str], ...] = ()


class Setting(NamedTuple):
    """One option as given. `flag` None: this version has no such option. `word` and `end` bound it in argv.

    `spelling` is what was typed (`-tp`, `--no-enable-prefix-caching`), `value` its text (None: a switch).
    """

    spelling: str
    value: str | None
    flag: Flag | None
    word: int
    end: int


class Reading(NamedTuple):
    """An Invocation as one version's parser reads it. `model` None: none is given. `surplus`: words it cannot place."""

    invocation: Invocation
    model: str | None
    settings: tuple[Setting, ...]
    surplus: tuple[int, ...] = ()

    def value(self, name: str) -> str | None:
        """The last value given to the flag of that full name; None: not given, or a switch."""
        found = [s for s in self.settings if s.flag and s.flag.name == name]
        return found[-1].value if found else None

    def on(self, name: str) -> bool | None:
        """Whether a switch is on (True), off by its `--no-` form (False) or not given (None); the last one counts."""
        found = [s for s in self.settings if s.flag and s.flag.name == name]
        if not found:
            return None
        negated = found[-1].spelling.replace("_", "-").startswith("--no-") and not name.startswith("--no-")
        return not negated and (found[-1].value or "true").lower() not in ("false", "0")
