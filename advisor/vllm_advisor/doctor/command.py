"""The user's own command, rebuilt from the arguments that the log prints, and what a change makes of it."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.doctor.mask import mask


if TYPE_CHECKING:
    from vllm_advisor.doctor.failure import Change
    from vllm_advisor.vllm.logs_args import Value
    from vllm_advisor.vllm.logs_facts import Facts

_NOT_FLAGS = ("model", "model_tag", "subparser", "dispatch_function", "config", "api_key", "hf_token")
# Of a Namespace, which prints all arguments: those that a start depends on, and the values that are defaults.
_TELLING = {
    "tensor_parallel_size": (1,),
    "pipeline_parallel_size": (1,),
    "data_parallel_size": (1,),
    "enable_expert_parallel": (False,),
    "max_model_len": (None,),
    "max_num_seqs": (None, 256),
    "max_num_batched_tokens": (None,),
    "gpu_memory_utilization": (0.9,),
    "kv_cache_dtype": ("auto",),
    "quantization": (None,),
    "dtype": ("auto",),
    "enforce_eager": (False,),
    "trust_remote_code": (False,),
    "distributed_executor_backend": (None,),
    "port": (8000,),
}


class Command(NamedTuple):
    """`argv` after `vllm serve`, `env` to set, and names of arguments that cannot be written as a flag again."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    unset: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Ready to paste, masked."""
        env = [f"{name}={_quoted(value)}" for name, value in self.env]
        before = [f"unset {' '.join(self.unset)};"] if self.unset else []
        return mask(" ".join([*before, *env, "vllm", "serve", *map(shlex.quote, self.argv)]), 4000)


def _quoted(value: str) -> str:
    return value if value.startswith("<") else shlex.quote(value)


def arguments(facts: Facts) -> dict[str, Value]:
    """What the user asked for, by the name of vLLM's field; {} where the log does not say."""
    if not facts.args_are_all:
        return facts.args
    return {
        name: facts.args[name]
        for name, plain in _TELLING.items()
        if name in facts.args and facts.args[name] not in plain
    }


def rebuilt(facts: Facts, change: Change) -> Command | None:
    """The command with a change; None where neither arguments nor a model are known."""
    if not facts.model and not facts.args:
        return None
    flags: dict[str, str | None] = {}
    lost = []
    for name, value in arguments(facts).items():
        if name in _NOT_FLAGS or value is None:
            lost += [name] if name in ("api_key", "hf_token") else []
            continue
        flag = "--" + name.replace("_", "-")
        written = _written(flag, value)
        if written is None:
            lost.append(name)
        else:
            flags[written[0]] = written[1]
    for flag, changed in change.flags:
        flags = {name: kept for name, kept in flags.items() if name not in (flag, flag.replace("--", "--no-", 1))}
        if changed is not None:
            flags[flag] = changed
    words = [facts.model or "MODEL"]
    for flag, text in flags.items():
        words += [flag, text] if text else [flag]
    env = tuple((name, text) for name, text in change.env if text is not None)
    unset = tuple(name for name, text in change.env if text is None)
    return Command(tuple(words), env, unset, tuple(lost))


def _written(flag: str, value: Value) -> tuple[str, str] | None:
    """A flag and its text ("" for a switch); None for an object that only Python can read."""
    if isinstance(value, bool):
        return (flag if value else flag.replace("--", "--no-", 1)), ""
    text = str(value)
    if not text.startswith(("[", "{", "(")):
        return None if text.endswith(")") and "(" in text else (flag, text)
    import ast  # noqa: PLC0415  few commands have such a value

    try:
        plain = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(plain, list | tuple) and len(plain) == 1:
        return flag, str(plain[0])
    return flag, json.dumps(plain, separators=(",", ":"), default=str)


def added(change: Change) -> str:
    """A change in words of the shell, for a command that is not known."""
    parts = [f"{name}={_quoted(value)}" for name, value in change.env if value is not None]
    parts += [f"unset {name}" for name, value in change.env if value is None]
    parts += [f"{flag} {shlex.quote(value)}" if value else flag for flag, value in change.flags if value is not None]
    parts += [f"without {flag}" for flag, value in change.flags if value is None]
    return mask(", ".join(parts), 1000)
