"""The options of `tuner serve` that are its own, with help that a newcomer understands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


Only = Annotated[str, typer.Option(help="Plans by their number in `advisor recommend`: 1,3.")]
Effort = Annotated[str, typer.Option(help="quick, normal or thorough.")]
Budget = Annotated[str | None, typer.Option(help="Time for all of it: 90s, 10m, 2h.")]
Trials = Annotated[int | None, typer.Option(min=1, help="How many configurations to try; none: the effort's.")]
VllmPython = Annotated[
    Path | None, typer.Option(envvar="ADVISOR_VLLM_PYTHON", help="The Python of an environment that has vLLM.")
]
Requests = Annotated[
    str | None,
    typer.Option(
        help="The load: a running server's address, conversations (ShareGPT .json), lengths (.jsonl, .csv), an access "
        ".log, or the text of /metrics."
    ),
]
Draft = Annotated[
    list[str] | None, typer.Option(help="A draft model for speculative decoding; repeat for several. Needs real texts.")
]
Tool = Annotated[
    str, typer.Option(help="What measures: auto (`vllm bench serve` where it works, else ours), vllm, or own.")
]
Gpu = Annotated[str | None, typer.Option("--gpu", help="cpu: the processor, whatever GPUs there are.")]
Vllm = Annotated[str | None, typer.Option("--vllm", help="The vLLM version; none: the installed one.")]
Quality = Annotated[
    str, typer.Option(help="How a plan that computes something else is compared with what was asked for: quick, full.")
]
NoQuality = Annotated[
    bool, typer.Option("--no-quality", help="Compare no answers; the profile is kept as unvalidated.")
]
ProfileId = Annotated[str, typer.Option(help="The id of a profile: measure exactly that plan here, and no other.")]
Against = Annotated[
    str,
    typer.Option(
        help="What runs now, a profile's id or 'vllm serve …' in quotes: it has to be beaten, not vLLM's defaults."
    ),
]
StartTimeout = Annotated[float, typer.Option(min=1, help="Seconds until a server must answer.")]
Folder = Annotated[Path | None, typer.Option(help="Where the servers' logs are kept.")]
Store = Annotated[
    str | None, typer.Option("--store", help="Where results are kept: a file or an address of PostgreSQL.")
]
Svg = Annotated[Path | None, typer.Option(help="Write the chart as SVG.")]
JsonLines = Annotated[bool, typer.Option("--json-lines", help="Events and the result on stdout as JSON.")]
