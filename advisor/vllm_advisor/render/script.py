"""A Python script around `vllm.LLM`, for batches in one process instead of a server.

It is written from the plan and not from the command: `LLM()` has other batch defaults than `vllm serve`, so other
arguments are needed for the same plan.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from vllm_advisor.errors import UsageError
from vllm_advisor.render.job import one_line


if TYPE_CHECKING:
    from vllm_advisor.render.job import Job

_PROMPT = "The capital of France is"


def python(job: Job) -> str:
    """A script that runs as it stands. Raises UsageError for data parallelism and for several nodes.

    vLLM refuses LLM(data_parallel_size > 1) in one process (0.24.0 entrypoints/llm.py:299, 0.33.0:289).
    """
    from vllm_advisor.vllm.command import llm_kwargs  # noqa: PLC0415

    job.must_be_one_node("a script around LLM()")
    if job.plan.data_parallel_size > 1:
        message = (
            f"LLM() does not run data parallel in one process, this plan has {job.plan.data_parallel_size} engines"
        )
        raise UsageError(message, "use --format command: the server does")
    kwargs = llm_kwargs(job.plan, job.model, job.node, job.surface, job.workload)
    text = "\n".join([*job.heading(), *job.comments(), *_imports(job), *_body(job, kwargs)]) + "\n"
    ast.parse(text)
    return text


def _imports(job: Job) -> list[str]:
    """The variables come first: vLLM reads some of them when it is imported."""
    if not job.command.env:
        return ["from vllm import LLM, SamplingParams", "", ""]
    settings = [f"os.environ[{name!r}] = {value!r}" for name, value in job.command.env]
    return ["import os", "", *settings, "", "from vllm import LLM, SamplingParams  # noqa: E402", "", ""]


def _body(job: Job, kwargs: tuple[tuple[str, object], ...]) -> list[str]:
    """The guard is needed: vLLM starts its engine as a new process that imports this file."""
    flag_of = {flag.field: name for name, flag in job.surface.flags.items()}
    return [
        "def main() -> None:",
        "    llm = LLM(",
        *(f"        {name}={value!r},{_remark(job, flag_of.get(name, ''))}" for name, value in kwargs),
        "    )",
        f"    for output in llm.generate([{_PROMPT!r}], SamplingParams(temperature=0, max_tokens=32)):",
        "        print(output.prompt + output.outputs[0].text)",
        "",
        "",
        'if __name__ == "__main__":',
        "    main()",
    ]


def _remark(job: Job, flag: str) -> str:
    why = job.why(flag) if job.annotate else ""
    return f"  # {one_line(why)}" if why else ""
