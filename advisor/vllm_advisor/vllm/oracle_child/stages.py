"""The two stages that need no device: vLLM's parser, then vLLM's configuration; the third is in `layers`.

Entry points by release: `entrypoints/common/cli_args.py` (0.33), `launchers/cli_args.py` (0.32), `openai/cli_args.py`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import json
from pathlib import Path
from typing import Any


load: Any = importlib.import_module  # of an environment whose packages are not known here
_PARSERS = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)
_ARGPARSE = ("vllm.utils.argparse_utils", "vllm.utils")


def prepare() -> None:
    """Everything that the first command would wait for."""
    registry = load("vllm.model_executor.models.registry")
    registry._run_in_subprocess = _in_this_process  # noqa: SLF001
    parser()


def _in_this_process(inspect: Any) -> Any:
    """The other process exists to spare the server's CUDA context; here there is none to spare."""
    return inspect()


@functools.cache
def parser() -> Any:
    """`vllm`'s own parser with its subcommand `serve` (entrypoints/cli/main.py)."""
    whole = _first(_ARGPARSE, "FlexibleArgumentParser").FlexibleArgumentParser(prog="vllm")
    serve = whole.add_subparsers(required=True, dest="subparser").add_parser("serve")
    _first(_PARSERS, "make_arg_parser").make_arg_parser(serve)
    return whole


def _first(names: tuple[str, ...], member: str) -> Any:
    for name in names:
        with contextlib.suppress(ImportError):
            module = load(name)
            if hasattr(module, member):
                return module
    raise ImportError(f"this vLLM has no {member} where its releases keep it")


def verdict(argv: list[str], *, kinds: bool) -> dict[str, Any]:
    """`parser` and `configuration`: None for accepted, else the error; `layers` where they are asked for."""
    args, refused = parsed(argv)
    if refused or args is None:
        return {"parser": refused}
    try:
        _plain_configuration(args.model_tag or args.model)
        config = configured(args)
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return {"parser": None, "configuration": _failure(error, traced=True)}
    answer: dict[str, Any] = {"parser": None, "configuration": None, "effective": effective(config)}
    if kinds:
        answer["layers"] = _layers(config)
    return answer


def _plain_configuration(folder: str) -> None:
    """A class that holds the published values, for a configuration whose own class is code in the repository."""
    file = Path(folder) / "config.json"
    config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    kind = config.get("model_type", "")
    auto = load("transformers.models.auto.configuration_auto")
    ours = getattr(load("vllm.transformers_utils.config"), "_CONFIG_REGISTRY", {})
    if config.get("needs_repository_code") and kind and kind not in auto.CONFIG_MAPPING and kind not in ours:
        base = load("transformers").PretrainedConfig
        members = _simple(config) | {"model_type": kind, "__init__": _with_rows(base)}
        auto.AutoConfig.register(kind, type("PlainConfig", (base,), members))


def _simple(config: dict[str, Any]) -> dict[str, Any]:
    """Numbers and words, as defaults of the class: transformers reads some of them before it has set any."""
    return {name: value for name, value in config.items() if isinstance(value, (int, float, str))}


class _Row(dict[str, Any]):
    """A mapping whose keys are attributes too, as the repository's own class has them for its blocks."""

    def __getattr__(self, name: str) -> Any:
        try:
            value = self[name]
        except KeyError:
            raise AttributeError(name) from None
        return _Row(value) if isinstance(value, dict) else value


def _with_rows(base: Any) -> Any:
    def __init__(self: Any, **given: Any) -> None:  # noqa: N807
        lists = {name: value for name, value in given.items() if isinstance(value, list)}
        rows = {name: [_Row(x) if isinstance(x, dict) else x for x in value] for name, value in lists.items()}
        base.__init__(self, **(given | rows))

    return __init__


def _layers(config: Any) -> dict[str, Any]:
    layers = load("oracle_child.layers")
    try:
        found: dict[str, Any] = layers.chosen(config)
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return {"failed": _failure(error, traced=True)}
    return found


def parsed(argv: list[str]) -> tuple[Any, dict[str, str] | None]:
    """The parsed arguments, or what argparse said on stderr."""
    said = io.StringIO()
    module = _first(_PARSERS, "make_arg_parser")
    try:
        with contextlib.redirect_stderr(said):
            args = parser().parse_args(argv)
            module.validate_parsed_serve_args(args)
    except SystemExit:
        return None, {"error": "SystemExit", "text": _last_error(said.getvalue())}
    except Exception as error:  # noqa: BLE001
        return None, _failure(error)
    return args, None


def _last_error(text: str) -> str:
    """The line after `error:` of what argparse prints."""
    return text.rpartition("error:")[2].strip() or text.strip()[-2000:]


def configured(args: Any) -> Any:
    """The VllmConfig that the server would start with."""
    if getattr(args, "model_tag", None) is not None:
        args.model = args.model_tag
    arg_utils = load("vllm.engine.arg_utils")
    usage = load("vllm.usage.usage_lib").UsageContext.OPENAI_API_SERVER
    return arg_utils.AsyncEngineArgs.from_cli_args(args).create_engine_config(usage)


def effective(config: Any) -> dict[str, Any]:
    """What the defaults came to on this device."""
    scheduler, cache = config.scheduler_config, config.cache_config
    return {
        "max_model_len": config.model_config.max_model_len,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_num_seqs": scheduler.max_num_seqs,
        "block_size": cache.block_size,
        "kv_cache_dtype": cache.cache_dtype,
        "quantization": config.model_config.quantization,
        "architecture": config.model_config.architecture,
    }


def _failure(error: BaseException, *, traced: bool = False) -> dict[str, str]:
    found = {"error": type(error).__name__, "text": str(error)[:4000]}
    if traced:
        import traceback  # noqa: PLC0415

        found["where"] = "".join(traceback.format_tb(error.__traceback__)[-4:])[:3000]
    return found
