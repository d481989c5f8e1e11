"""Tuning vLLM's own kernel, with a timer whose times are known: the search, the A/B, null results, the server."""

import random
import sys
import textwrap

import pytest

from vllm_advisor.errors import EngineError, UsageError
from vllm_advisor.hardware import Vendor
from vllm_advisor.plan import Plan
from vllm_tuner import gate
from vllm_tuner.kernel_tuning.strategies import Exhaustive, Pattern, Random
from vllm_tuner.vllm_configs import asking, names, space, table, tuning
from vllm_tuner.vllm_configs.defaults import Where, default_config
from vllm_tuner.vllm_configs.serverlog import LogVerdict
from vllm_tuner.vllm_configs.shapes import Shape
from vllm_tuner.vllm_configs.timing import Session, Unfit
from vllm_tuner.vllm_configs.tune import Effort, Job, keep_if_server_wins, server_env, tune, tuned_table, with_files


H100 = Where((0, 33, 0), Vendor.NVIDIA, "sm90")
MI300 = Where((0, 33, 0), Vendor.AMD, "gfx942")
PLAIN = Shape(8, 1792, 4096, 2, 1792)
FEW = Effort(trials=40, repeats=3, warmup=0, rounds=20)


class Clock:
    """A timer whose law is given: tiles → µs. Noise of 1 %, the same for a seed."""

    def __init__(self, law, *, wrong=(), unfit=()):
        self.law, self.wrong, self.unfit = law, wrong, unfit
        self.rng = random.Random(7)  # noqa: S311 - noise, no secret
        self.pairs = self.timed = 0
        self.vllm, self.device, self.triton = "0.33.0+cu130", "NVIDIA H100 80GB HBM3", "3.9.0"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def default(self, batch):
        return default_config(H100, PLAIN, batch)

    def error(self, batch, config):  # noqa: ARG002 - as the real one is asked
        if any(config.items() >= one.items() for one in self.unfit):
            raise Unfit("OutOfResources: shared memory")
        return 0.5 if any(config.items() >= one.items() for one in self.wrong) else 1e-3

    def once(self, config):
        return self.law(config) * (1 + 0.01 * self.rng.random())

    def time(self, batch, config, repeats, warmup):  # noqa: ARG002
        self.timed += 1
        return [self.once(config) for _ in range(repeats)]

    def pair(self, batch, a, b, rounds):  # noqa: ARG002
        self.pairs += rounds
        return [(self.once(a), self.once(b)) for _ in range(rounds)]


def narrow(config):
    """N tiles of 32 are a fifth faster, and nothing else matters much."""
    return 80.0 if config["BLOCK_SIZE_N"] == 32 else 100.0 + config["num_stages"]


def flat(_):
    """Nothing matters."""
    return 100.0


@pytest.mark.parametrize("make", [Exhaustive, Pattern, Random])
def test_any_strategy_finds_what_is_faster(make):
    """The winner beats vLLM's default in turns and takes its place for the batch size that was measured alone."""
    outcome = tune(Job(Clock(narrow), H100, PLAIN, make, FEW), [16, 64])
    assert [True, True] == [result.won for result in outcome.results]
    assert {32} == {result.best["BLOCK_SIZE_N"] for result in outcome.winners}
    assert "2 of 2 batch sizes have better tiles: 16, 64" == outcome.says
    made = tuned_table(outcome, H100, triton="3.9.0")
    assert 32 == made.nearest(16)["BLOCK_SIZE_N"]
    assert [default_config(H100, PLAIN, b) for b in (15, 17, 63, 65)] == [made.nearest(b) for b in (15, 17, 63, 65)]


def test_noise_is_no_win():
    """Where nothing matters the default stands, and the result is called null; no table is made of it."""
    outcome = tune(Job(Clock(flat), H100, PLAIN, Random, FEW), [1, 16, 256])
    assert [] == list(outcome.winners)
    assert outcome.says.startswith("null result: vLLM's default stands for all 3 batch sizes")
    assert tuned_table(outcome, H100) is None


def test_wrong_or_unfit_tiles_never_win():
    """The fastest are wrong or do not run: they are not timed, and the fastest of the rest goes into the A/B."""
    clock = Clock(narrow, wrong=[{"BLOCK_SIZE_N": 32, "num_warps": 4}], unfit=[{"BLOCK_SIZE_N": 32, "num_warps": 8}])
    result = tune(Job(clock, H100, PLAIN, Exhaustive, Effort(trials=400, repeats=1, warmup=0)), [16]).results[0]
    assert 32 != result.best["BLOCK_SIZE_N"]
    assert result.tried - result.unfit == clock.timed
    assert 0 < result.unfit < result.tried


def test_nothing_that_runs_is_said():
    """All tiles are refused: vLLM's default stands."""
    clock = Clock(flat, unfit=[{}])
    result = tune(Job(clock, H100, PLAIN, Random, FEW), [16]).results[0]
    assert "vLLM's default stands: nothing that was tried runs" == result.says
    assert 0 == clock.pairs


def test_default_that_is_fastest_is_not_contested():
    """No A/B of a configuration against itself."""
    clock = Clock(lambda c: 50.0 if c.items() >= {k: v for k, v in D16.items() if k != "SPLIT_K"}.items() else 100.0)
    result = tune(Job(clock, H100, PLAIN, Random, FEW), [16]).results[0]
    assert (None, 0) == (result.best, clock.pairs)


D16 = default_config(H100, PLAIN, 16)


def test_time_that_is_up_ends_the_search():
    """Batch sizes that were not reached are left out, and so keep vLLM's default."""
    assert () == tune(Job(Clock(flat), H100, PLAIN, Random, FEW, end=0.0), [1, 2]).results


@pytest.mark.parametrize("batch", [1, 16, 512])
@pytest.mark.parametrize("where", [H100, MI300, Where((0, 33, 0), Vendor.NVIDIA, "sm80")])
def test_space_starts_at_the_default_and_holds_legal_tiles(where, batch):
    """VLLM's default is a member and the first to be asked; every member passes the strict reader's rules."""
    from vllm_tuner.vllm_configs.legal import config_problems

    default = default_config(where, PLAIN, batch)
    room = space.space(where, PLAIN, batch, default)
    start = dict(room.settings(room.starts[0]))
    assert {k: v for k, v in default.items() if k != "SPLIT_K"}.items() <= start.items()
    assert [] == [line for point in room.points for line in config_problems(dict(room.settings(point)), None, where)]


@pytest.mark.parametrize(
    ("shape", "batch", "config", "says"),
    [
        (PLAIN, 1, {"BLOCK_SIZE_M": 64}, "larger than all tokens"),
        (Shape(256, 256, 7168, 8, 256, "fp8_w8a8", (128, 128)), 64, {"BLOCK_SIZE_K": 256}, "does not fit the block"),
        (PLAIN, 512, {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 128, "num_stages": 4}, "227 KiB"),
    ],
)
def test_objections(shape, batch, config, says):
    """Tiles that cannot win or cannot run are not asked for."""
    assert says in space.objection(H100, shape, batch, config)


def test_waste_grows_with_the_tile():
    """One token to eight experts of two: two rows in two tiles of 16 or of 128."""
    assert [16.0, 128.0] == [pytest.approx(space.waste(PLAIN, 1, {"BLOCK_SIZE_M": m}), rel=0.1) for m in (16, 128)]


def decided(gains):
    """The gate's decision on a server's A/B with these gains."""
    return gate.decide(None, [gate.Pair(100.0, 100.0 * (1 + gain)) for gain in gains])


def test_table_is_kept_only_if_the_server_wins(tmp_path):
    """Files stay where the server with them won; else they are taken away, and it is called a null result."""
    file = PLAIN.file("NVIDIA_H100_80GB_HBM3")
    path = table.write(tmp_path, file, table.complete([], H100, PLAIN))
    kept = keep_if_server_wins(decided([0.05] * 8), tmp_path, [file])
    assert (True, True, "kept: the server with it is faster (+5.0%)") == (kept.kept, path.is_file(), kept.says[:42])
    lost = keep_if_server_wins(decided([0.002, -0.004] * 10), tmp_path, [file])
    assert (False, False, (path,)) == (lost.kept, path.is_file(), lost.paths)
    assert lost.says.startswith("null result: not better by more than 1.0% in most rounds")
    assert "0 files taken away" in keep_if_server_wins(decided([0.0] * 9), tmp_path, [file]).says


def test_win_of_a_server_that_never_read_the_table_is_none(tmp_path):
    """Whatever the contest says: it compared vLLM's default with itself."""
    file = PLAIN.file("NVIDIA_H100_80GB_HBM3")
    path = table.write(tmp_path, file, table.complete([], H100, PLAIN))
    said = [LogVerdict(file.name, "silent", "vLLM never looked: the experts run on MARLIN")]
    lost = keep_if_server_wins(decided([0.05] * 8), tmp_path, [file], said)
    assert (False, False) == (lost.kept, path.is_file())
    assert lost.says.startswith("null result: the server never read it: vLLM never looked")
    table.write(tmp_path, file, table.complete([], H100, PLAIN))
    assert keep_if_server_wins(decided([0.05] * 8), tmp_path, [file], [said[0]._replace(state="read")]).kept


def test_server_gets_the_folder(tmp_path):
    """One variable, an absolute path, in the plan's environment and once."""
    named = ("VLLM_TUNED_CONFIG_FOLDER", str(tmp_path))
    assert (named,) == server_env(tmp_path)
    plan = Plan("x", env=(("VLLM_TUNED_CONFIG_FOLDER", "/old"), ("VLLM_ROCM_USE_AITER", "0")))
    assert (("VLLM_ROCM_USE_AITER", "0"), named) == with_files(plan, tmp_path).env


def listed(version="0.33.0"):
    """A listing of a model whose experts run on Triton."""
    from vllm_advisor.catalog import gpus, models
    from vllm_advisor.vllm import surface
    from vllm_tuner.vllm_configs.listing import Asked, listing

    model = models.find("Qwen/Qwen3-30B-A3B")
    return listing(Asked(model, Plan("x"), surface.load(version), gpus.find("H100 SXM")), None)


def test_run_writes_one_table_for_a_shape(tmp_path):
    """Under the name of the device that answered, with its Triton; progress is told for each batch size."""
    told = []
    wanted = tuning.Wanted((16, 64), "random", 40, 600)
    (done,) = tuning.run(tmp_path, listed(), tmp_path, wanted, told.append, opened=lambda *_: Clock(narrow))
    assert "E=128,N=768,device_name=NVIDIA_H100_80GB_HBM3.json" == done.path.name
    assert "3.9.0" == table.read(done.path).triton
    assert [True, True] == [line.startswith("batch size") for line in told]


def test_run_that_finds_nothing_writes_nothing(tmp_path):
    """A null result leaves the folder as it was."""
    wanted = tuning.Wanted((16,), "random", 10, 600)
    (done,) = tuning.run(tmp_path, listed(), tmp_path, wanted, lambda _: None, opened=lambda *_: Clock(flat))
    assert (None, []) == (done.path, list(tmp_path.iterdir()))


def test_other_release_is_refused(tmp_path):
    """Its defaults would be written as this one's."""
    with pytest.raises(UsageError, match=r"0\.32\.0 is asked about, the environment has 0\.33\.0"):
        tuning.run(
            tmp_path, listed("0.32.0"), tmp_path, tuning.Wanted((1,), "random"), print, opened=lambda *_: Clock(flat)
        )


@pytest.mark.parametrize("text", ["", "1,x", "0", "1.5"])
def test_batch_sizes_are_whole_numbers(text):
    """Anything else is a usage error."""
    with pytest.raises(UsageError, match="no batch sizes"):
        tuning.numbers(text)


def test_batch_sizes_in_order():
    """Each once."""
    assert (1, 8, 64) == tuning.numbers("64, 1,8,8")


@pytest.fixture
def child(tmp_path):
    """An interpreter that answers as the timer's child does."""

    def make(body):
        path = tmp_path / "python"
        path.write_text(f"#!{sys.executable}\nimport json, sys\nsay = lambda v: print(json.dumps(v), flush=True)\n"
                        f"first = json.loads(sys.stdin.readline())\n{textwrap.dedent(body)}\n")  # fmt: skip
        path.chmod(0o755)
        return path

    return make


def test_session_asks_and_stops(child):
    """Orders go out as lines, answers come back as values, and what is raised over there is Unfit here."""
    python = child("""
        say({"vllm": "0.33.0", "device": "D", "triton": "3.9.0"})
        for line in sys.stdin:
            order = json.loads(line)
            if order["do"] == "time":
                say({"us": [1.0] * order["repeats"]})
            elif order["do"] == "pair":
                say({"pairs": [[1.0, 2.0]] * order["rounds"]})
            elif order["do"] == "default":
                say({"config": {"BLOCK_SIZE_M": order["batch"]}})
            else:
                say({"raised": {"error": "OutOfResources", "text": "shared\\nmemory"}})
    """)
    with Session(python, PLAIN) as session:
        assert ("0.33.0", "D", "3.9.0") == (session.vllm, session.device, session.triton)
        assert [1.0, 1.0] == session.time(1, {}, 2, 0)
        assert [(1.0, 2.0)] == session.pair(1, {}, {}, 1)
        assert {"BLOCK_SIZE_M": 16} == session.default(16)
        with pytest.raises(Unfit, match="OutOfResources: shared memory"):
            session.error(1, {})


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("sys.exit(1)", "died: it wrote nothing"),
        ("print('RuntimeError: no driver', file=sys.stderr); sys.exit(1)", "RuntimeError: no driver"),
        ("say([1])", "said [1]"),
        ("print('x', flush=True)", "died"),
        ("sys.stdin.read()", "silent for 0.2 s"),
        (f"say({{'failed': {{'error': 'RuntimeError', 'text': {asking.NO_GPU!r}}}}})", "this machine has no GPU"),
    ],
)  # fmt: skip
def test_session_that_fails_is_one_line(child, body, says):
    """Each way to fail is an engine error."""
    with pytest.raises(EngineError) as caught, Session(child(body), PLAIN, allowed_s=0.2 if "silent" in says else 60):
        pass
    assert says in caught.value.message


def test_refusal_s_words_are_the_child_s():
    """The child cannot import ours: the same sentence stands on both sides."""
    assert f'NO_GPU = "{asking.NO_GPU}"' in (asking.CHILD / "timer.py").read_text()
    assert names.kind(PLAIN.file("x").name) == "experts"
