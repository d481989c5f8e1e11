"""`advisor-quantize MODEL OUT`: write a model's weights in MXFP4 for vLLM's quantization `advisor_mxfp4`.

stdout has the summary (or, with --json, one object), stderr the progress. Exit codes: 0 done, 2 bad input, 130
interrupted; in the last two cases the same command goes on later where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_mx_kernels.checkpoint_files import BadFileError
from vllm_mx_kernels.checkpoint_plan import Plan, plan


if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_mx_kernels.checkpoint import Result

WORST = 5
_BAD_INPUT, _INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    args = _parser().parse_args(argv)
    try:
        return _run(args)
    except (BadFileError, OSError, ModuleNotFoundError) as error:
        _say(f"error: {_reason(error)}")
        return _BAD_INPUT
    except KeyboardInterrupt:
        _say("interrupted; the same command goes on from here")
        return _INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="advisor-quantize",
        description="Write a model's weights in MXFP4 (4.25 bits each) for vLLM with --quantization advisor_mxfp4.",
        epilog="example: advisor-quantize ./Qwen3-8B ./Qwen3-8B-mxfp4 --ignore layers.0 --scale-mode rceil",
    )
    parser.add_argument("model", type=Path, help="local folder with config.json and *.safetensors in bf16, f16 or f32")
    parser.add_argument("out", type=Path, help="folder to write: new, empty, or from an interrupted run")
    ignore = "leave these modules as they are: part of a name, a shell pattern, or re:EXPRESSION; may be repeated"
    parser.add_argument("--ignore", action="append", default=[], metavar="PATTERN", help=ignore)
    modes = "how a block's scale is rounded (OCP MX says floor)"
    parser.add_argument("--scale-mode", choices=("floor", "rceil", "even"), default="floor", help=modes)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be written")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _run(args: argparse.Namespace) -> int:
    intended = plan(args.model, args.ignore)
    if args.dry_run:
        _print(args, _planned(intended), _plan_text(intended))
        return 0
    from vllm_mx_kernels.checkpoint import write

    result = write(args.model, args.out, intended, args.scale_mode, _say)
    _print(args, _done(intended, result), _result_text(args.out, intended, result))
    return 0


def _print(args: argparse.Namespace, value: dict[str, Any], text: str) -> None:
    print(json.dumps(value, indent=2) if args.json else text)  # noqa: T201  what the command answers


def _planned(intended: Plan) -> dict[str, Any]:
    return {
        "bytes_before": intended.bytes_before, "bytes_after": intended.bytes_after, "shards": len(intended.shards),
        "quantized": intended.pieces, "kept": list(intended.kept),
    }  # fmt: skip


def _done(intended: Plan, result: Result) -> dict[str, Any]:
    errors = {"relative_rms": result.relative_rms, "worst": [e._asdict() for e in result.worst(WORST)]}
    return _planned(intended) | {"resumed": result.resumed} | errors | {"layers": [e._asdict() for e in result.errors]}


def _plan_text(intended: Plan) -> str:
    return (
        f"{intended.pieces} weights in MXFP4, {len(intended.kept)} modules as they are:"
        f" {_gib(intended.bytes_before)} -> {_gib(intended.bytes_after)} in {len(intended.shards)} files"
    )


def _result_text(out: Path, intended: Plan, result: Result) -> str:
    worst = [f"  {error.relative_rms:.4f}  {error.module}" for error in result.worst(WORST)]
    rms = f"relative RMS error {result.relative_rms:.4f}; the largest:"
    serve = f"serve it: vllm serve {out} --quantization advisor_mxfp4"
    return "\n".join((_plan_text(intended), rms, *worst, serve))


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201  progress and errors


def _reason(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed; pip install 'vllm-advisor[tuner]'"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
