"""The hand-off file: what is written is read, what does not hold here is ignored in one line, nothing raises."""

import json
import logging
import os
import stat

import pytest


pytest.importorskip("torch", reason="the machine's facts are torch's")

from vllm_mx_kernels import handoff, launch, machine
from vllm_mx_kernels.handoff import CPU_LINEAR, Entry, HandoffError, Key, read_configs, write_configs
from vllm_mx_kernels.tiles import CpuTile, Launch


LOGGER = "vllm.advisor_mxfp4.configs"
TILE = CpuTile(rows=4, task_rows=32)
CPU_KEY = Key(CPU_LINEAR, "avx2", 16, 576, 1536)
GPU_KEY = Key("mxfp4.w4a16", "sm90", 16, 4096, 4096)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    """No file, and nothing read: what a test sets is what the process sees first."""
    monkeypatch.delenv(handoff.ENVIRONMENT, raising=False)
    handoff.forget()
    yield
    handoff.forget()


@pytest.fixture
def serving(monkeypatch, tmp_path):
    """Name a file with these entries, or with this text, to the process."""

    def name(content):
        path = tmp_path / "configs.json"
        if isinstance(content, str):
            path.write_text(content)
        else:
            write_configs(path, content)
        monkeypatch.setenv(handoff.ENVIRONMENT, str(path))
        handoff.forget()
        return path

    return name


def cpu_entry(key=CPU_KEY, tile=TILE, **other):
    op = key.op
    facts = {"device": machine.processor(), "source": handoff.source_hash(op), "triton": "", "driver": ""}
    return Entry(key, **(facts | {"runtime": "torch 2", "launch": tile} | other))


def gpu_entry(key=GPU_KEY, **other):
    facts = {"device": "NVIDIA H100", "source": handoff.source_hash(key.op), "triton": machine.triton_version(key.op)}
    return Entry(key, **(facts | {"driver": "575", "runtime": "CUDA 13.0", "launch": Launch(16, 32, 256)} | other))


@pytest.fixture
def h100(monkeypatch):
    """A machine with one, as far as the file is concerned."""
    real = machine.device
    monkeypatch.setattr(machine, "device", lambda op: real(op) if op.startswith("cpu.") else "NVIDIA H100")


def lines(caplog):
    return [r.getMessage() for r in caplog.records if r.name == LOGGER]


def test_what_is_written_is_read(tmp_path):
    """Both kinds of launches, every fact."""
    entries = (cpu_entry(), gpu_entry())
    write_configs(tmp_path / "new folder" / "c.json", entries)

    assert entries == read_configs(tmp_path / "new folder" / "c.json")


def test_the_same_entries_are_the_same_bytes(tmp_path):
    """In whatever order they come; of one key and device the last counts."""
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    write_configs(first, [cpu_entry(), gpu_entry()])
    write_configs(second, [cpu_entry(tile=CpuTile(rows=1)), gpu_entry(), cpu_entry()])

    assert first.read_bytes() == second.read_bytes()


def test_writing_leaves_the_old_file_or_the_new_one(tmp_path, monkeypatch):
    """A failure in the middle changes nothing and leaves nothing behind; the file can be read by a server's user."""
    path = tmp_path / "c.json"
    write_configs(path, [cpu_entry()])
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_configs(path, [gpu_entry()])

    assert before == path.read_bytes()
    assert [path] == list(tmp_path.iterdir())
    assert 0o644 == stat.S_IMODE(path.stat().st_mode)


def test_a_tuned_bucket_is_taken_and_only_that(serving):
    """9 to 16 tokens have it; 8 and 17, another shape and another instruction set keep the default."""
    serving([cpu_entry()])

    assert TILE == launch.tuned_tile(CPU_LINEAR, "avx2", 9, 576, 1536)
    assert TILE == launch.tuned_tile(CPU_LINEAR, "avx2", 16, 576, 1536)
    for arch, m, n in (("avx2", 8, 576), ("avx2", 17, 576), ("avx2", 16, 577), ("avx512", 16, 576)):
        assert launch.tuned_tile(CPU_LINEAR, arch, m, n, 1536) is None


@pytest.mark.usefixtures("h100")
def test_a_tuned_launch_takes_the_place_of_the_tables(serving):
    """And of a mixture of experts, by the whole batch; an untuned bucket takes the table's by an expert's share."""
    routed = Key("moe.w4a16", "sm90", 64, 2048, 1024, 32, 4)
    serving([gpu_entry(), gpu_entry(routed, launch=Launch(32, 64, 64))])

    assert Launch(16, 32, 256) == launch.tuned_launch("mxfp4.w4a16", "sm90", 12, 4096, 4096)
    assert Launch(32, 64, 64) == launch.tuned_launch("moe.w4a16", "sm90", 33, 2048, 1024, 32, 4)
    assert launch.default_launch("moe.w4a16", "sm90", 8) == launch.tuned_launch(
        "moe.w4a16", "sm90", 65, 2048, 1024, 32, 4
    )
    assert launch.default_launch("mxfp4.w4a16", "sm90", 17) == launch.tuned_launch(
        "mxfp4.w4a16", "sm90", 17, 4096, 4096
    )


@pytest.mark.parametrize(
    ("tokens", "bucket"), [(0, 1), (1, 1), (2, 2), (3, 4), (16, 16), (17, 32), (8192, 8192), (100_000, 8192)]
)
def test_buckets_end_at_powers_of_two(tokens, bucket):
    """The last one has no end."""
    assert bucket == handoff.token_bucket(tokens)


@pytest.mark.usefixtures("h100")
def test_one_line_says_what_was_taken_and_why_not(serving, caplog):
    """Device, kernels and Triton of another time each make an entry stale, and what is no op of ours."""
    caplog.set_level(logging.INFO, LOGGER)
    stale = [{"device": "NVIDIA A100"}, {"source": "0"}, {"triton": "2.0"}, {"device": "NVIDIA L4"}]
    others = [gpu_entry(GPU_KEY._replace(tokens=1 << i), **change) for i, change in enumerate(stale)]
    path = serving([cpu_entry(), gpu_entry(), *others, cpu_entry(CPU_KEY._replace(tokens=1), Launch(16, 16, 16))])
    for _ in range(3):
        launch.tuned_tile(CPU_LINEAR, "avx2", 100, 1, 32)

    reasons = "2 for another device, 1 for another Triton, 1 for other kernels, 1 of the wrong kind"
    assert [f"ADVISOR_KERNEL_CONFIGS: took 2 entries of {path}, ignored 5 ({reasons})"] == lines(caplog)


def test_the_first_use_of_an_op_is_told(serving, caplog):
    """Once, with the tile that was chosen and the file that it comes from."""
    caplog.set_level(logging.INFO, LOGGER)
    path = serving([cpu_entry(), cpu_entry(CPU_KEY._replace(tokens=1))])
    for m in (16, 16, 1):
        assert TILE == launch.tuned_tile(CPU_LINEAR, "avx2", m, 576, 1536)

    told = f"cpu.mxfp4.linear: tile rows=4 task_rows=32 for m<=16 n576 k1536, from {path}"
    assert [f"ADVISOR_KERNEL_CONFIGS: took 2 entries of {path}, ignored 0", told] == lines(caplog)


BROKEN = {
    "nothing": "",
    "no JSON": "{",
    "no object": "[]",
    "no schema": '{"entries": []}',
    "another schema": '{"schema": 2, "entries": []}',
    "entries of another kind": '{"schema": 1, "entries": {}}',
    "an entry of another kind": '{"schema": 1, "entries": [3]}',
    "no launch": json.dumps({"schema": 1, "entries": [{**CPU_KEY._asdict(), "device": "a", "source": "b",
                             "triton": "", "driver": "", "runtime": ""}]}),
}  # fmt: skip


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_a_warning_and_defaults(serving, caplog, text):
    """One line, and the server serves."""
    path = serving(text)
    for _ in range(2):
        assert launch.tuned_tile(CPU_LINEAR, "avx2", 16, 576, 1536) is None

    (record,) = (r for r in caplog.records if r.name == LOGGER)
    assert "WARNING" == record.levelname
    assert record.getMessage().startswith(f"ADVISOR_KERNEL_CONFIGS: default launches for all products: {path}: ")
    assert "\n" not in record.getMessage()


def test_a_missing_file_is_a_warning(monkeypatch, caplog, tmp_path):
    """With the reason of the system."""
    monkeypatch.setenv(handoff.ENVIRONMENT, str(tmp_path / "none.json"))
    assert launch.tuned_tile(CPU_LINEAR, "avx2", 16, 576, 1536) is None

    (line,) = lines(caplog)
    assert line.endswith("No such file or directory")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"n": "576"}, "n is '576'"),
        ({"tokens": True}, "tokens is True"),
        ({"device": None}, "device is None"),
        ({"tile": {"columns": 4}}, "no launch or tile of known numbers"),
        ({"tile": {"rows": 4.0}}, "made of whole numbers"),
    ],
    ids=str,
)
def test_an_entry_that_is_wrong_is_named(serving, change, reason):
    """By its number and what is wrong about it."""
    path = serving([cpu_entry()])
    document = json.loads(path.read_text())
    document["entries"][0] |= change
    path.write_text(json.dumps(document))

    with pytest.raises(HandoffError, match=f"entry 0: .*{reason}"):
        read_configs(path)


def test_no_file_says_nothing(caplog):
    """An untuned server's log has no line of it."""
    caplog.set_level(logging.DEBUG, LOGGER)
    assert launch.tuned_tile(CPU_LINEAR, "avx2", 16, 576, 1536) is None
    assert [] == lines(caplog)


@pytest.mark.parametrize("op", ["mxfp4.w4a16", "moe.fp8", "fp8.block", "kv.decode", "cpu.mxfp4.linear"])
def test_a_source_hash_is_of_the_bodies(op, monkeypatch, tmp_path):
    """It changes with one of the files that an op is made of, and with nothing else."""
    real = handoff.source_hash(op)
    copied = tmp_path / "package"
    (copied / "cpu").mkdir(parents=True)
    for pattern in handoff._BODIES[op.partition(".")[0]]:
        for path in handoff._HERE.glob(pattern):
            (copied / path.relative_to(handoff._HERE)).write_bytes(path.read_bytes())
    monkeypatch.setattr(handoff, "_HERE", copied)
    handoff.source_hash.cache_clear()
    (copied / "other.py").write_text("")
    assert real == handoff.source_hash(op)
    next(p for p in copied.rglob("*") if p.is_file() and p.name != "other.py").write_text("changed")
    handoff.source_hash.cache_clear()
    assert real != handoff.source_hash(op)
    handoff.source_hash.cache_clear()
