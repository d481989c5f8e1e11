"""`vllm bench serve` as the measuring tool: equal work, equal figures, and our own client where it does not work."""

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from vllm_advisor.errors import EngineError, UsageError
from vllm_advisor.launch import Server
from vllm_advisor.plan import LaunchCommand
from vllm_advisor.workload import Sla, Workload
from vllm_tuner import bench_tool, load, report, serving
from vllm_tuner.bench_tool import Job, Tool, ToolFailed
from vllm_tuner.effort import EFFORTS
from vllm_tuner.load import Request, Target
from vllm_tuner.testing import KNEE, facts, install, small_space
from vllm_tuner.trial import BudgetSpent
from vllm_tuner.workloads import Shape, Synthetic


# A result of `vllm bench serve --save-detailed`: 0.32.0 on a CPU, SmolLM2, 5 requests, 2 at once, limits 150 and 45 ms.
RECORDED = Path(__file__).parents[1] / "data/tuner/bench_serve_0.32.0.json"
LIMITS = Sla(ttft_ms=150, tpot_ms=45)
OURS = {
    "output_tok_s": "output_throughput",
    "total_tok_s": "total_token_throughput",
    "request_s": "request_throughput",
    "goodput_s": "request_goodput",
} | {f"{name}_ms": f"mean_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el")}

# A `vllm` whose `bench serve` plays what its trace says, with our client, and writes what the real one would.
FAKE = """#!{python}
import json, os, sys
if sys.argv[1:3] != ["bench", "serve"]:
    os.execv("{serve}", ["vllm", *sys.argv[1:]])
sys.path += {path}
from pathlib import Path
from vllm_advisor.workload import Sla
from vllm_tuner import load, report
given = dict(zip(sys.argv, sys.argv[1:]))
Path("argv.json").write_text(json.dumps([sys.argv, dict(os.environ)]))
rows = [json.loads(line) for line in open(given["--dataset-path"])]
Path("rows.json").write_text(json.dumps(rows))
{extra}
def request(row):
    taken = row["input_length"]
    return load.Request((1,) * taken, taken, row["output_length"], row["timestamp"])
requests = [request(row) for row in rows]
target = load.Target(given["--base-url"], given["--model"])
most = int(given["--max-concurrency"]) if "--max-concurrency" in given else None
played = load.play(target, requests, concurrency=most)
document = report.document(played, target, Sla(), rate=None, concurrency=most)
Path(given["--result-dir"], given["--result-filename"]).write_text(json.dumps(document))
"""


def fake(folder, extra=""):
    """A folder for the PATH with such a `vllm`, in front of the stand-in."""
    serve = install(folder / "real") / "vllm"
    script = folder / "vllm"
    script.write_text(FAKE.format(python=sys.executable, serve=serve, path=sys.path, extra=extra))
    script.chmod(0o755)
    return folder


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A bench whose `vllm` is the fake, measured with vLLM's tool; notes are kept in `bench.notes`."""

    def made(extra="", choice="auto", load=None):
        folder = fake(tmp_path, extra)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        space = small_space(facts(tmp_path / "tiny"), plans=1)
        source = Synthetic(load or space.facts.workload, Shape(1000, 256))
        notes = []
        row = EFFORTS["quick"]._replace(waves=1, tight=9.0)
        tool = Tool(choice, notes.append)
        return serving.Bench(space, lambda _: source, row, tmp_path / "runs", tool=tool, price_hour=3.6), notes

    return made


def measured(bench):
    start = list(bench.space.starts()[0])
    start[1] = KNEE
    return serving.measure(bench, bench.space.candidate(tuple(start)), "a", time.monotonic() + 120, None)


def test_figures_of_the_tool_s_answers_are_the_tool_s_own():
    """From the times of a real result, by our formulas: each figure that the result names, to the last digits."""
    document = json.loads(RECORDED.read_text())
    found = report.figures(bench_tool.played(document), LIMITS)
    named = OURS | {name: name for name in found if name[0] == "p"}

    assert set(found) == set(named)
    assert {name: pytest.approx(document[theirs]) for name, theirs in named.items()} == found
    assert 0 < found["goodput_s"] < found["request_s"]


def test_a_document_of_ours_says_what_the_tool_s_says():
    """Every key of ours is one of the real tool's, with the same value for the same answers."""
    theirs = json.loads(RECORDED.read_text())
    played = bench_tool.played(theirs)
    ours = report.document(played, Target("http://h", "smollm2"), LIMITS, rate=None, concurrency=2)
    del ours["date"]

    assert {key: pytest.approx(theirs[key]) if isinstance(ours[key], float) else theirs[key] for key in ours} == ours


def test_the_tool_plays_the_source_s_requests(bench):
    """Lengths, concurrency, seed and limits as asked; no warm-up and no first try of its own; the tool is named."""
    made, notes = bench()
    found = measured(made).measurement
    argv, _ = json.loads((made.folder / "a/argv.json").read_text())
    rows = json.loads((made.folder / "a/rows.json").read_text())
    given = dict(pairwise(argv))
    last = found.repeats - 1

    assert ([], "vllm bench serve") == (notes, found.tool)
    asked = made.source(None).requests(8, last)
    assert [(r.input_tokens, r.output_tokens) for r in asked] == [(r["input_length"], r["output_length"]) for r in rows]
    assert ("8", str(last), "0", "0", "timed_trace") == tuple(
        given[name]
        for name in ("--max-concurrency", "--seed", "--num-warmups", "--ready-check-timeout-sec", "--dataset-name")
    )
    assert 8 == json.loads((made.folder / f"a/bench-{last}.json").read_text())["completed"]
    assert found.figure("output_tok_s").mid > 0


def test_chunks_that_prompts_share_have_one_name(bench):
    """A prefix of 32 tokens is two names that all prompts begin with; what follows differs."""
    shared = Workload(input_tokens=64, output_tokens=2, concurrency=8, shared_prefix_tokens=32)
    made, _ = bench(load=shared)
    measured(made)
    names = [row["hash_ids"] for row in json.loads((made.folder / "a/rows.json").read_text())]

    assert 1 == len({tuple(row[:2]) for row in names})
    assert 8 == len({tuple(row[2:]) for row in names})


def test_a_rate_keeps_its_own_times(bench):
    """Timed requests are sent at their times, without a limit of those in flight."""
    made, _ = bench(load=Workload(input_tokens=8, output_tokens=2, concurrency=8, request_rate=50.0))
    measured(made)
    argv, _ = json.loads((made.folder / "a/argv.json").read_text())
    times = [row["timestamp"] for row in json.loads((made.folder / "a/rows.json").read_text())]

    assert "--max-concurrency" not in argv
    assert sorted(times) == times
    assert times[-1] > 0


@pytest.mark.parametrize(
    ("extra", "said"),
    [("sys.exit('ModuleNotFoundError: No module named aiohttp')", "No module named aiohttp"),
     ("Path(given['--result-dir'], given['--result-filename']).write_text('{}'); sys.exit(0)", "KeyError: 'ttfts'"),
     ("sys.exit(0)", "FileNotFoundError")],
    ids=["no package", "other keys", "no result"],
)  # fmt: skip
def test_a_tool_that_does_not_work_gives_way_once_and_says_so(bench, extra, said):
    """Our own client measures instead, for the rest of the search, with one note."""
    made, notes = bench(extra)
    found = measured(made).measurement

    assert (1, "vllm_tuner.load", "own") == (len(notes), found.tool, made.tool.using)
    assert said in notes[0]
    assert "our own client measures instead" in notes[0]
    assert 3 == found.repeats


def test_figures_of_two_tools_are_not_averaged(bench):
    """It fails in the second repeat: the first one's figures are dropped, and three of our own are taken."""
    made, notes = bench("sys.exit('Error: broke') if given['--seed'] == '1' else None")

    assert (3, "vllm_tuner.load") == (measured(made).measurement.repeats, made.tool_name)
    assert 1 == len(notes)
    # Seeds 1, 2 and 3: none a second time, which the prefix cache would answer.
    assert {f"bench-{seed}.json" for seed in range(4)} == {
        file.name for file in (made.folder / "a").glob("bench-*.json")
    }


def test_a_tool_that_was_asked_for_by_name_does_not_give_way(bench):
    """`vllm` means vLLM's."""
    made, notes = bench("sys.exit('Error: broke')", choice="vllm")

    with pytest.raises(EngineError, match="vllm bench serve does not work: Error: broke"):
        measured(made)
    assert [] == notes


def test_without_a_tool_our_own_client_measures(bench):
    """As before there was a choice; a stand-in that has no benchmark is told of in one note."""
    made, _ = bench()

    assert "vllm_tuner.load" == measured(made._replace(tool=None)).measurement.tool
    with pytest.raises(UsageError, match="no measuring tool 'wrk'"):
        Tool("wrk")


def test_a_price_is_a_figure_beside_the_others(bench):
    """One device at 3.60 an hour: a thousandth of a unit a second, so a thousandth of the device's seconds."""
    made, _ = bench(choice="own")
    found = measured(made).measurement

    assert pytest.approx(found.figure("device_s_per_mtok").mid / 1000) == found.figure("usd_per_mtok").mid


def test_the_child_ends_with_the_time(tmp_path, monkeypatch):
    """A tool that hangs is killed with its whole group when the end comes: BudgetSpent."""
    monkeypatch.setenv("PATH", f"{fake(tmp_path, 'import time; time.sleep(600)')}{os.pathsep}{os.environ['PATH']}")
    job = Job(None, Target("http://127.0.0.1:9", "m"), "m", tmp_path, 0)

    with pytest.raises(BudgetSpent):
        job.play([Request((1,), 1, 1)], concurrency=1, sla=Sla(), end=time.monotonic() + 1)
    left = [c for c in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(c)]
    assert [] == left


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_limits_and_texts_become_the_tool_s_own_options(tmp_path, monkeypatch):
    """Goodput's limits; texts go as they are, in their order, each with its own answer's length."""
    monkeypatch.setenv("PATH", f"{fake(tmp_path, 'sys.exit(0)')}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    job = Job(None, Target("http://127.0.0.1:9", "m"), "org/m", tmp_path, 3)

    with pytest.raises(ToolFailed):
        job.play([Request("hello", 1, 7), Request("you", 1, 2)], concurrency=2, sla=LIMITS)
    argv, environment = json.loads((tmp_path / "argv.json").read_text())
    text = " ".join(argv)
    assert "--dataset-name custom --skip-chat-template --disable-shuffle" in text
    assert "--goodput ttft:150 tpot:45" in text
    assert [{"prompt": "hello", "output_tokens": 7}, {"prompt": "you", "output_tokens": 2}] == json.loads(
        (tmp_path / "rows.json").read_text()
    )
    assert ("127.0.0.1" in environment["NO_PROXY"], "0") == (True, environment["PYTHONHASHSEED"])


@pytest.fixture(scope="module")
def real(vllm_python, made_model, tmp_path_factory):
    """A real vLLM with SmolLM2, four places in the batch."""
    limits = ("--max-model-len", "512", "--max-num-seqs", "4", "--enforce-eager", "--dtype", "float32")
    argv = ("vllm", "serve", str(made_model("smollm2")), *limits)
    command = LaunchCommand(argv, (("VLLM_CPU_KVCACHE_SPACE", "1"),))
    with Server(command, run_folder=tmp_path_factory.mktemp("run"), vllm_python=vllm_python) as running:
        running.wait_until_ready()
        yield running, vllm_python


@pytest.mark.vllm
def test_both_tools_see_the_same_server(real, tmp_path):
    """The real tool and ours on one server, in turns: the same work to the token, and the better medians of a size.

    The bound is wide, for the machine may be busy with something else: it would catch another unit or another clock.
    """
    server, python = real
    target = Target(server.url, server.model)
    source = Synthetic(Workload(input_tokens=48, output_tokens=12, concurrency=4), Shape(49152, 512))
    load.play(target, source.requests(8, 99), concurrency=4)
    theirs, ours = [], []
    for seed in range(2):
        requests = source.requests(12, seed)
        job = Job(python, target, server.command.argv[2], tmp_path, seed)
        played, document = job.play(requests, concurrency=4, sla=LIMITS, end=time.monotonic() + 300)
        found = report.figures(played, LIMITS)
        assert {name: pytest.approx(document[key]) for name, key in OURS.items()} == {n: found[n] for n in OURS}
        assert [(r.input_tokens, r.output_tokens) for r in requests] == [
            (a.input_tokens, a.output_tokens) for a in played.answers
        ]
        theirs.append(found)
        ours.append(report.figures(load.play(target, requests, concurrency=4), LIMITS))
    for name in ("p50_ttft_ms", "p50_tpot_ms", "p50_itl_ms", "p50_e2el_ms"):
        better = [min(run[name] for run in runs) for runs in (theirs, ours)]
        assert 1 / 4 < better[0] / better[1] < 4, name
