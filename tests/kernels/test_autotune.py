"""The search's facts: spaces without repetition, bounds that bound, points that equal the twin, times of them."""

import json
import re
import statistics
from pathlib import Path

import pytest


torch = pytest.importorskip("torch", reason="ops are functions of torch tensors")
pytest.importorskip("triton", reason="the compiler is Triton's")

from vllm_mx_kernels import autotune as a  # noqa: E402
from vllm_mx_kernels import autotune_cpu, cpu, handoff  # noqa: E402
from vllm_mx_kernels.launch import TABLE, default_launch  # noqa: E402
from vllm_mx_kernels.targets import TARGETS  # noqa: E402
from vllm_mx_kernels.tiles import CpuTile, Launch  # noqa: E402


CPU = "cpu.mxfp4.linear"
PAGE = Path(__file__).parents[2] / "docs/kernels.md"
PEAKS = a.Peaks(3.35e12, 990e12)


@pytest.fixture
def built(request, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(request.config.cache.mkdir("vllm-mx-kernels")))
    if not cpu.available():
        pytest.skip("no C++ compiler that torch can use")


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def gpu_problems(arch, m):
    for op in a.catalog(arch):
        moe = op.startswith("moe.")
        yield a.Problem(op, arch, m, 4096, 2048, 32 if moe else 0, 4 if moe else 0)


@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("m", [1, 16, 4096])
def test_every_launch_of_the_table_is_a_point(arch, m):
    """The default of each op is in its space, without objection, and stands for the table's launch."""
    for problem in gpu_problems(arch, m):
        point = a.default_point(problem)
        share = -(-m * 4 // 32) if problem.experts else m
        usual = default_launch(problem.op, arch, share)

        assert "" == a.objection(problem, point)
        assert usual[:5] == a.launch(problem, point)[:5]


def test_every_op_with_a_launch_can_be_tuned():
    """But for attention over the cache: its shape is no matrix."""
    named = {op for row in TABLE for op in row.ops.split()} - {"kv.decode"}
    assert named == {op for arch in TARGETS for op in a.catalog(arch)}
    assert (CPU,) == a.catalog("cpu") == a.catalog("avx2")
    with pytest.raises(KeyError, match="sm70"):
        a.catalog("sm70")
    with pytest.raises(KeyError, match="w4a4"):
        a.axes(a.Problem("mxfp4.w4a4", "sm90", 16, 4096, 4096))


@pytest.mark.parametrize("m", [1, 2, 3, 8, 16, 48, 64, 128, 1024])
def test_the_cpus_default_is_a_point_that_does_as_no_tile(m, threads):
    """For every instruction set; a space has more than one point, none of them twice."""
    for arch in autotune_cpu.MOST_PRODUCTS:
        problem = a.Problem(CPU, arch, m, 2048, 1024)
        points = list(a.points(problem))
        tile = a.launch(problem, a.default_point(problem))

        assert a.default_point(problem) in points
        assert len(points) == len(set(points)) > 4 * threads
        assert CpuTile() == tile._replace(tokens=8)
        assert tile.tokens in {8, 4, 2, 1}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("m", [3, 8, 16, 32])
def test_points_of_a_space_do_different_things(m):
    """No two have the same path, register tiles, scales, division, pieces: what does nothing has an objection."""
    problem = a.Problem(CPU, "avx512", m, 512, 512)
    done = [behaviour(problem, a.launch(problem, point)) for point in a.points(problem)]
    assert len(done) == len(set(done))


def behaviour(problem, tile):
    """What `ops.cpp` and `body.h` make of a tile, told again."""
    batch = tile.batch or problem.m
    if problem.m > tile.fused_tokens:
        piece = min(max(tile.decoded // problem.k, 1), problem.n)
        return ("decoded", piece, tile.decoded if piece == problem.n else 0, batch, tile.own_tiles, tile.float32)
    tokens, widths, left = tile.tokens, [], min(batch, problem.m)
    while tokens > 1 and tile.rows * tokens > 16:
        tokens //= 2
    while tokens:
        if left >= tokens:
            widths.append((tokens, tokens > tile.scaled_sums))
            left %= tokens
        tokens = 2 if tokens > 2 else tokens - 1
    return ("codes", tile.rows, tuple(widths), tile.prefetch, tile.task_rows, batch)


@pytest.mark.parametrize(
    ("problem", "change", "objection"),
    [
        (("mxfp4.w4a16", "sm90", 16, 4096, 4096), {"block_m": 32}, "a tile of 32 tokens, and the shape has 16"),
        (("mxfp4.w4a16", "sm90", 16, 64, 4096), {"block_n": 128}, "a tile of 128 rows, and the shape has 64"),
        (("mxfp4.w4a16", "sm90", 16, 4096, 96), {"block_k": 256}, "a tile of 256 columns, and the shape has 96"),
        (("mxfp4.w4a16", "sm89", 4096, 4096, 4096), {"block_m": 256, "block_n": 256, "num_warps": 4},
         "512 sums a thread, and it has 255 registers"),
        (("fp8.tensor", "sm89", 4096, 4096, 4096), {"block_k": 256, "num_stages": 4},
         "196608 bytes of shared memory at least, and a block has 101376"),
        (("mxfp4.w4a16", "sm90", 16, 4096, 4096), {"group": 1}, "group without effect: there is one tile of tokens"),
        (("mxfp4.w4a16", "sm90", 16, 4096, 4096), {"num_stages": 9}, "num_stages 9 is none of 1, 2, 3, 4, 5"),
        ((CPU, "avx2", 8, 4096, 4096), {"rows": 4}, "4 × 4 sums, and registers hold 8"),
        ((CPU, "avx512", 8, 4096, 4096), {"scaled_sums": 0}, "scaled_sums 0 without effect: tiles are of 8 tokens"),
        ((CPU, "avx512", 16, 4096, 4096), {"decoded": 65536}, "decoded without effect: nothing is decoded"),
        ((CPU, "avx512", 16, 4096, 4096), {"fused_tokens": 0, "rows": 4}, "rows without effect: the weight is decoded"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_is_told(problem, change, objection):
    """With the numbers, before anything is compiled."""
    problem = a.Problem(*problem)
    names = [axis.name for axis in a.axes(problem)]
    point = list(a.default_point(problem))
    for name, value in change.items():
        point[names.index(name)] = value
    assert objection == a.objection(problem, tuple(point))


def test_shared_memory_is_never_overestimated():
    """The bound on it stays below what the compiler took, for every build of the page."""
    from vllm_mx_kernels import autotune_triton

    row = re.compile(r"\| (\S+) (decode|prefill) \| (\S+) \| (\d+)x(\d+)x(\d+) \| (\d+), (\d+) \|.*\| (\d+) KiB \|")
    builds = row.findall(PAGE.read_text())
    assert 100 < len(builds)
    for op, _, arch, *numbers in builds:
        *launch, kib = map(int, numbers)
        problem = a.Problem(op, arch, 4096, 4096, 4096, *((8, 2) if op.startswith("moe.") else ()))
        assert autotune_triton.least_shared(problem, Launch(*launch)) <= (kib + 1) * 1024


def test_bounds_are_of_whole_tiles_and_of_memory():
    """16 tokens cost the weight's bytes, 4096 the operations; one token more costs a whole tile more."""
    small = a.Problem("mxfp4.w4a16", "sm90", 16, 4096, 4096)
    large = small._replace(m=4096)
    weight, activations = 4096 * 4096 * 17 / 32, 2 * 16 * 8192
    assert a.bound_us(small, a.default_point(small), PEAKS) == pytest.approx((weight + activations) / 3.35e6)
    assert a.bound_us(large, a.default_point(large), PEAKS) == pytest.approx(2 * 4096**3 / 990e6)
    odd = a.Problem("fp8.tensor", "sm90", 4097, 4096, 4096)
    assert a.bound_us(odd, a.default_point(odd), PEAKS) == pytest.approx(2 * 4224 * 4096**2 / 990e6)


def test_experts_are_bounded_by_the_fewest_that_can_be_chosen():
    """Two choices a token read at least two experts, each with both weights."""
    problem = a.Problem("moe.w4a16", "sm90", 16, 2048, 1024, 32, 2)
    two = 2 * (2048 * 1024 + 1024 * 1024) * 17 / 32
    assert a.bound_us(problem, a.default_point(problem), PEAKS) == pytest.approx((two + 4 * 16 * 1024) / 3.35e6)


def test_problems_of_a_model():
    """A dense model's four shapes at the tops of its buckets; experts routed by one op, and one by one on a CPU."""
    dense = a.problems("mxfp4.w4a16", "sm90", hidden=576, intermediate=1536, tokens=(1, 100), qkv=960, attention=576)
    shapes = {(576, 576), (576, 1536), (960, 576), (3072, 576)}
    assert {(m, *shape) for m in (1, 128) for shape in shapes} == {p[2:5] for p in dense}
    (routed,) = a.problems("moe.w4a16", "sm90", hidden=64, intermediate=96, experts=8, top_k=2, tokens=(16,))
    assert a.Problem("moe.w4a16", "sm90", 16, 192, 64, 8, 2) == routed
    single = a.problems(CPU, "avx2", hidden=64, intermediate=96, experts=8, top_k=2, tokens=(16,))
    assert {(4, 192, 64), (4, 64, 96)} == {p[2:5] for p in single}


def test_buckets_and_keys():
    """A problem's bucket is what the server looks up for any of its numbers of tokens."""
    problem = a.Problem("moe.w4a16", "sm90", 9, 2048, 1024, 32, 4)
    assert "m<=16 n2048 k1024 e32 top4" == a.bucket(problem)
    assert "m>4096 n2048 k1024" == a.bucket(a.Problem("mxfp4.w4a16", "sm90", 5000, 2048, 1024))
    assert handoff.Key("moe.w4a16", "sm90", 16, 2048, 1024, 32, 4) == a.key_of(problem)


def test_an_entry_holds_here(built, monkeypatch, tmp_path):
    """What a winner becomes is what this process then takes, written and read."""
    del built
    problem = a.Problem(CPU, "cpu", 1, 96, 64)
    point = next(p for p in a.points(problem) if p != a.default_point(problem))
    handoff.write_configs(tmp_path / "c.json", [a.entry(problem, point)])
    monkeypatch.setenv(handoff.ENVIRONMENT, str(tmp_path / "c.json"))
    handoff.forget()

    assert a.launch(problem, point) == handoff.tuned(a.key_of(problem))
    x, codes, scales = torch.randn(1, 64), torch.zeros(96, 32, dtype=torch.uint8), torch.zeros(96, 2, dtype=torch.uint8)
    cpu.linear(x, codes, scales)
    assert {CPU} == handoff.configs().used
    handoff.forget()


@pytest.mark.parametrize("m", [1, 7, 16, 40, 130])
@pytest.mark.usefixtures("built")
def test_points_of_the_cpu_are_correct(m):
    """The default and others spread over the space."""
    problem = a.Problem(CPU, "cpu", m, 130, 1056)
    points = list(a.points(problem))
    for point in {a.default_point(problem), *points[:: max(1, len(points) // 12)], points[-1]}:
        assert "" == a.correct(problem, point)


@pytest.mark.usefixtures("built")
def test_a_wrong_product_is_told(monkeypatch):
    """By how much it differs."""
    from vllm_mx_kernels import autotune_operands

    problem = a.Problem(CPU, "cpu", 2, 64, 64)
    real = autotune_operands.cpu.linear
    monkeypatch.setattr(autotune_operands.cpu, "linear", lambda *args: real(*args) * 1.1)
    assert re.fullmatch(
        r"largest error \S+ of the RMS, at most \S+ allowed", a.correct(problem, a.default_point(problem))
    )


@pytest.mark.parametrize("op", ["mxfp4.w4a16", "mxfp4.w4a8", "fp8.channel", "fp8.block", "moe.w4a16", "moe.fp8"])
def test_points_of_the_interpreter_are_correct(op):
    """Triton's bodies at another tile than the default, on operands of each kind."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    moe = op.startswith("moe.")
    problem = a.Problem(op, "sm90", 3, 128, 128, 4 if moe else 0, 2 if moe else 0)
    point = (16, 32, 128, 4, 1, 8)[: len(a.axes(problem))]
    assert "" == a.correct(problem, point)


def test_another_machines_problem_cannot_run():
    """A line that says what is missing."""
    for problem in (a.Problem("mxfp4.w4a16", "gfx950", 1, 64, 64), a.Problem(CPU, "neon", 1, 64, 64)):
        if "neon" not in problem.arch or "neon" not in cpu.instruction_sets():
            with pytest.raises(a.NoDeviceError):
                a.correct(problem, a.default_point(problem))


@pytest.mark.usefixtures("built")
def test_timer_times_points():
    """As many times as were asked for, of both of a pair; a product of 64 × the work takes longer."""
    small, large = a.Problem(CPU, "cpu", 1, 64, 64), a.Problem(CPU, "cpu", 1, 512, 512)
    times = {p: a.Timer(p).time(a.default_point(p), repeats=15, warmup=1) for p in (small, large)}
    assert [15, 15] == [len(t) for t in times.values()]
    assert 0 < min(times[small]) < min(times[large])

    timer = a.Timer(large)
    both = timer.pair(a.default_point(large), a.default_point(large), rounds=21)
    assert 21 == len(both)
    assert 0 < statistics.median(pair.first_us for pair in both)


@pytest.mark.usefixtures("built")
def test_operands_are_more_than_the_cache_holds():
    """So that every call reads its weight from memory, as a layer of a model does."""
    from vllm_mx_kernels.autotune_run import cache_bytes

    timer = a.Timer(a.Problem(CPU, "cpu", 1, 2048, 2048))
    total = sum(operands.nbytes for operands in timer._copies)
    places = {operands.weight.codes.data_ptr() for operands in timer._copies}
    assert 2 * cache_bytes(gpu=False) <= total
    assert len(places) == len(timer._copies)


def test_the_gate_of_the_cpu_lets_all_through():
    """One build takes every tile."""
    problem = a.Problem(CPU, "avx2", 1, 64, 64)
    points = list(a.points(problem))
    assert dict.fromkeys(points, a.GateReport()) == a.gate(problem, points, jobs=2, limit_s=1)


def test_the_gate_tells_launches_apart():
    """The default passes, with its instruction; one whose buffers no block holds does not, with the bytes."""
    problem = a.Problem("fp8.tensor", "sm89", 4096, 4096, 4096)
    usual = a.default_point(problem)
    deep = (*usual[:4], 5, usual[5])
    found = a.gate(problem, [usual, deep], jobs=2, limit_s=300)

    assert [usual, deep] == list(found)
    assert found[usual].passed
    assert "e4m3.e4m3" in found[usual].instruction
    assert "131072 bytes of shared memory, and a block has 101376" == found[deep].failure


def test_the_gate_stops_a_build_that_takes_too_long():
    """And says so."""
    problem = a.Problem("mxfp4.w4a16", "sm90", 16, 4096, 4096)
    (report,) = a.gate(problem, [a.default_point(problem)], jobs=1, limit_s=0.001).values()
    assert "stopped after 0.001 s" == report.failure


SPACES = sorted((Path(__file__).parents[1] / "data/kernel_spaces").glob("*.json"))


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_recorded_spaces_are_whole(path, monkeypatch):
    """Every legal point of the axes that it names, each once and with a time; measured at this space's shape."""
    space = json.loads(path.read_text())
    monkeypatch.setattr(autotune_cpu, "_threads", lambda: space["threads"])
    monkeypatch.setattr(autotune_cpu, "multiplies_bfloat16", lambda: "float32" in {x["name"] for x in space["axes"]})
    autotune_cpu._framed.cache_clear()
    problem = a.Problem(*(space[name] for name in ("op", "arch", "m", "n", "k")))
    measured = [tuple(row["point"]) for row in space["points"]]

    assert [a.Axis(axis["name"], tuple(axis["values"])) for axis in space["axes"]] == list(a.axes(problem))
    assert a.default_point(problem) == tuple(space["default"])
    assert len(measured) == len(set(measured))
    assert set(a.points(problem)) == set(measured)
    assert all(row["median_us"] > 0 and 0 <= row["spread"] for row in space["points"])
    autotune_cpu._framed.cache_clear()
