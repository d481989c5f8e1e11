"""The timer's child, in this process: its orders over a stand-in of vLLM's kernel and of CUDA's graphs and events."""

import contextlib
import importlib.util
import types

import pytest

from vllm_tuner.vllm_configs import asking


torch = pytest.importorskip("torch")
PACKAGE = "vllm.model_executor.layers.fused_moe"
SHAPE = {
    "experts": 8, "width": 64, "hidden": 96, "top_k": 2, "intermediate": 64, "dtype": None, "block": None
}  # fmt: skip
A, B = {"BLOCK_SIZE_M": 16}, {"BLOCK_SIZE_M": 32}


def load(name):
    """A script of the child's, as a module."""
    spec = importlib.util.spec_from_file_location(f"child_{name}", asking.CHILD / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FakeVllm:
    """VLLM's package: its override, and experts that multiply in PyTorch; `spoiled` tiles give something else."""

    def __init__(self):
        self.tiles = None
        self.launches = []
        self.spoiled = None

    @contextlib.contextmanager
    def override_config(self, config):
        old, self.tiles = self.tiles, config
        yield
        self.tiles = old

    def fused_experts(self, x, w1, w2, weights, experts, quant_config):  # noqa: PLR0917 - as vLLM has it
        assert quant_config is None
        self.launches.append(self.tiles)
        both = torch.einsum("mk,mtnk->mtn", x.float(), w1.float()[experts.long()])
        gate, up = both.chunk(2, dim=-1)
        down = torch.einsum("mtn,mthn->mth", torch.nn.functional.silu(gate) * up, w2.float()[experts.long()])
        out = torch.einsum("mth,mt->mh", down, weights)
        return out * (2 if self.tiles == self.spoiled else 1)


class FakeEvent:
    """An event of a clock that every replay moves by 8 µs."""

    clock = 0.0

    def __init__(self, *, enable_timing):
        assert enable_timing

    def record(self):
        self.at = FakeEvent.clock

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return other.at - self.at


class FakeGraph:
    """A graph whose replay takes 8 µs."""

    def replay(self):
        FakeEvent.clock += 8e-3


@pytest.fixture
def vllm(monkeypatch):
    """The stand-ins in place of vLLM and CUDA."""
    import sys

    fake = FakeVllm()
    parts = {
        PACKAGE: {"override_config": fake.override_config},
        f"{PACKAGE}.fused_moe": {"fused_experts": fake.fused_experts, "get_default_config": lambda *_: A},
        f"{PACKAGE}.config": {},
    }
    for name in ("vllm", "vllm.model_executor", "vllm.model_executor.layers", *parts):
        module = types.ModuleType(name)
        module.__dict__.update(parts.get(name, {}))
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    return fake


@pytest.fixture
def ordered(vllm):  # noqa: ARG001 - it has to stand there
    """Gives the answer to an order about the same problem."""
    problem, timer = load("experts").Problem(SHAPE, "cpu"), load("timer")
    return lambda **order: timer.done(problem, order)


def test_candidate_agrees_with_the_default_or_not(vllm, ordered):
    """The error is a share of the largest result under vLLM's own tiles."""
    assert {"error": 0.0} == ordered(do="correct", batch=5, config=B)
    vllm.spoiled = B
    assert 1.0 == pytest.approx(ordered(do="correct", batch=5, config=B)["error"])


def test_launch_is_an_eighth_of_a_graph(vllm, ordered):
    """A graph holds eight launches over four inputs, after one of each; all of them under the tiles asked for."""
    assert {"us": [pytest.approx(1.0)] * 3} == ordered(do="time", batch=5, config=B, repeats=3, warmup=2)
    assert [B] * 12 == vllm.launches
    assert vllm.tiles is None


def test_pair_is_timed_in_turn(vllm, ordered):
    """Two graphs, and as many rounds as were asked for."""
    assert {"pairs": [[pytest.approx(1.0)] * 2] * 3} == ordered(do="pair", batch=5, a=A, b=B, rounds=3)
    assert [A] * 12 + [B] * 12 == vllm.launches


def test_default_is_vllm_s(ordered):
    """Nothing of ours."""
    assert {"config": A} == ordered(do="default", batch=5)


def test_alignment_pads_each_expert_to_whole_tiles():
    """Slots by expert; the number of real slots marks padding; each tile has one owner."""
    ids, owners, padded = load("experts").align(torch, torch.tensor([[2, 0], [2, 3]]), 4, 4)
    assert [1, 4, 4, 4, 0, 2, 4, 4, 3, 4, 4, 4] == ids.tolist()
    assert ([0, 2, 3], [12]) == (owners.tolist(), padded.tolist())
