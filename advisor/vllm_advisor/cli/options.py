"""The options that several commands share, each said once, with help that a newcomer understands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vllm_advisor import question
from vllm_advisor.cli import lazy


DEFAULT_VLLM = question.DEFAULT_VLLM
examples, single = lazy.examples, lazy.single


MACHINE, LOAD, FIXED, ANSWER = "Machine", "Workload", "Fix a choice", "Answer"

Model = Annotated[str, typer.Argument(help="A model name, a local folder or a config.json.", show_default=False)]
OptionalModel = Annotated[
    str | None, typer.Argument(help="A model name, a local folder or a config.json.", show_default=False)
]
GpuName = Annotated[
    str | None, typer.Option("--gpu", help="A machine by name: 8xH100, 2x8xH200 (two nodes), MI300X, cpu.")
]
NodeFile = Annotated[Path | None, typer.Option("--node", help="A machine recorded by `advisor probe --save`.")]
Vllm = Annotated[str, typer.Option("--vllm", help="The vLLM version that will run: 0.24.0 … 0.33.0.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Offline = Annotated[bool, typer.Option("--offline", help="Never ask the network.")]
Revision = Annotated[str | None, typer.Option("--revision", help="The model's revision on the hub.")]

Preset = Annotated[
    str, typer.Option("--workload", help="chat, code, maths, agent, rag, retrieval, summarize or batch.")
]
InputTokens = Annotated[str | None, typer.Option(help="Typical prompt length: 8000, 8k.")]
OutputTokens = Annotated[str | None, typer.Option(help="Typical answer length.")]
Concurrency = Annotated[int | None, typer.Option(min=1, help="Requests in flight at once.")]
Context = Annotated[str | None, typer.Option(help="Longest request to serve, input and output: 131072, 128K.")]
RequestRate = Annotated[float | None, typer.Option(min=0, help="Requests a second, instead of a fixed concurrency.")]
SharedPrefix = Annotated[str | None, typer.Option(help="Tokens that prompts have in common (system prompt, tools).")]
ObjectiveName = Annotated[str | None, typer.Option("--objective", help="balanced, throughput, latency or cost.")]
Ttft = Annotated[float | None, typer.Option("--ttft-ms", min=0, help="Upper limit for the first token, ms.")]
Tpot = Annotated[float | None, typer.Option("--tpot-ms", min=0, help="Upper limit for each later token, ms.")]
SensitivityName = Annotated[
    str | None,
    typer.Option("--sensitivity", help="How much a loss of accuracy hurts: tolerant, normal, sensitive or retrieval."),
]

Quantization = Annotated[
    str | None, typer.Option(help="Only this online quantization; `none`: the checkpoint as it is.")
]
KvCacheDtype = Annotated[str | None, typer.Option(help="Only this KV-cache dtype.")]
TensorParallel = Annotated[int | None, typer.Option("--tp", min=1, help="Only this tensor-parallel size.")]
PipelineParallel = Annotated[int | None, typer.Option("--pp", min=1, help="Only this pipeline-parallel size.")]
DataParallel = Annotated[int | None, typer.Option("--dp", min=1, help="Only this data-parallel size.")]
ExpertParallel = Annotated[bool | None, typer.Option("--ep/--no-ep", help="Only with, or without, expert parallelism.")]
Utilization = Annotated[
    float | None, typer.Option("--gpu-memory-utilization", min=0.01, max=1.0, help="vLLM's share of the memory.")
]
MaxNumSeqs = Annotated[int | None, typer.Option(min=1, help="Only this many sequences in a batch.")]
MaxBatchedTokens = Annotated[
    int | None, typer.Option("--max-num-batched-tokens", min=1, help="Only this many tokens a step.")
]
# `advisor estimate` describes one configuration: the same flags, said of what runs and not of what may be proposed.
RunVllm = Annotated[str, typer.Option("--vllm", help="The vLLM version that runs: 0.5.0 … 0.33.0.")]
RunTensorParallel = Annotated[int, typer.Option("--tp", min=1, help="Tensor-parallel size.")]
RunPipelineParallel = Annotated[int, typer.Option("--pp", min=1, help="Pipeline-parallel size.")]
RunDataParallel = Annotated[int, typer.Option("--dp", min=1, help="Data-parallel size.")]
RunExpertParallel = Annotated[bool, typer.Option("--ep/--no-ep", help="Expert parallelism.")]
RunContextParallel = Annotated[int, typer.Option("--dcp", min=1, help="Decode-context-parallel size.")]
RunQuantization = Annotated[str | None, typer.Option("--quantization", help="Quantize while loading: fp8, mxfp8, …")]
RunKvCacheDtype = Annotated[str | None, typer.Option("--kv-cache-dtype", help="auto, fp8, nvfp4, …")]
RunLength = Annotated[
    str | None, typer.Option("--max-model-len", help="Longest request: 32768, 32K. None: the model's.")
]
RunSequences = Annotated[int | None, typer.Option("--max-num-seqs", min=1, help="Sequences in a batch.")]
RunBatchedTokens = Annotated[int | None, typer.Option("--max-num-batched-tokens", min=1, help="Tokens in a step.")]
RunBlockSize = Annotated[int | None, typer.Option("--block-size", min=1, help="Tokens a KV block.")]
GivenKvGib = Annotated[
    float | None,
    typer.Option("--given-kv-gib", min=0.001, help="Take this KV cache (GiB a device) and say what it holds."),
]
BatchFile = Annotated[Path | None, typer.Option("--batch", help="JSON lines: model, gpu, tp, max_model_len, …")]
ModelsFolder = Annotated[Path | None, typer.Option("--models", help="A folder of configs, publisher--name.json.")]
GivenKv = Annotated[bool, typer.Option("--given-kv", help="With --batch: take each row's kv_mem_gib as it is.")]

Price = Annotated[float | None, typer.Option(min=0, help="What one GPU costs an hour: adds the cost of tokens.")]
Prices = Annotated[Path | None, typer.Option(help='A TOML file of prices an hour: "H100 SXM" = 2.49')]
Recipes = Annotated[
    Path | None, typer.Option("--recipes", help="A clone of vllm-project/recipes: its recipe beside our plan.")
]
Eager = Annotated[bool, typer.Option("--enforce-eager", help="No CUDA graphs: less memory, slower.")]
ThisCheckpoint = Annotated[bool, typer.Option("--this-checkpoint", help="Do not propose sibling checkpoints.")]
AllGpus = Annotated[bool, typer.Option("--all-gpus", help="Only plans that use every device.")]
AllowPlugin = Annotated[
    bool, typer.Option("--allow-plugin", help="Propose our vLLM plugin, advisor_mxfp4, too: the server has to have it.")
]
ServerPython = Annotated[
    Path | None,
    typer.Option("--vllm-python", help="The Python of the server's environment: asked which vLLM plugins it has."),
]
