"""Ahead-of-time builds: no GPU, nine targets, no spills, the instruction that the format has; and the page of them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


pytest.importorskip("torch", reason="the bodies' modules are beside torch's")
pytest.importorskip("triton", reason="the compiler is Triton's")

from vllm_mx_kernels import compile as c
from vllm_mx_kernels.build_page import is_current
from vllm_mx_kernels.launch import TABLE, Launch, default_launch
from vllm_mx_kernels.targets import TARGETS


ROOT = Path(__file__).resolve().parents[2]
# (case, target, instruction): each target's own, and what serves MXFP4 at the FP8 rate of Hopper.
BUILDS = [
    ("mxfp4.w4a16 decode", "sm80", r"mma\.sync.*bf16"),
    ("moe.w4a16 decode", "sm80", r"mma\.sync.*bf16"),
    ("mxfp4.w4a8 decode", "sm89", r"mma\.sync.*e4m3\.e4m3"),
    ("fp8.channel decode", "sm89", r"mma\.sync.*e4m3\.e4m3"),
    ("mxfp4.w4a8 prefill", "sm90", r"wgmma.*e4m3\.e4m3"),
    ("mxfp4.w4a8 decode", "sm90", r"wgmma.*e4m3\.e4m3"),
    ("moe.w4a8 decode", "sm90", r"wgmma.*e4m3\.e4m3"),
    ("fp8.block prefill", "sm90", r"wgmma.*e4m3\.e4m3"),
    ("mxfp4.w4a4 prefill", "sm100", r"tcgen05.*kind::mxf4\b"),
    ("mxfp4.w4a8mx decode", "sm100", r"tcgen05.*kind::mxf8f6f4"),
    ("kv.decode", "sm100", ""),
    ("mxfp4.w4a4 decode", "sm103", r"tcgen05.*kind::mxf4\b"),
    ("mxfp4.w4a4 prefill", "sm120", r"mma\.sync.*kind::mxf4"),
    ("mxfp4.quantize", "sm120", ""),
    ("fp8.channel decode", "gfx942", "v_mfma.*fp8_fp8"),
    ("mxfp4.w4a8 decode", "gfx942", "v_mfma.*fp8_fp8"),
    ("mxfp4.w4a4 decode", "gfx950", "v_mfma_scale.*f8f6f4"),
    ("mxfp4.w4a8mx prefill", "gfx950", "v_mfma_scale.*f8f6f4"),
    ("mxfp4.w4a16 decode", "gfx1201", "v_wmma.*bf16"),
    ("mxfp4.w4a8 prefill", "gfx1201", "v_wmma.*fp8_fp8"),
]


@pytest.fixture(scope="module")
def builder():
    """One compiling process for the module; it is kept from interpreting, whatever this process does."""
    with c.Builder(limit_s=100) as builder:
        yield builder


@pytest.mark.parametrize(("case", "target", "instruction"), BUILDS, ids=lambda v: v if isinstance(v, str) else None)
def test_builds_are_sound_and_native(case, target, instruction, builder):
    """No spills, shared memory that fits, and the matrix instruction of the format."""
    built = builder.build(case, None, TARGETS[target])

    assert ("", 0) == (built.failure, built.spills)
    assert built.sound
    assert re.search(instruction, built.instruction), built.instruction
    assert built.registers > 0
    assert built.occupancy >= 1


def test_every_target_is_among_them():
    """The small set leaves no architecture out."""
    assert set(TARGETS) == {target for _, target, _ in BUILDS}


def test_a_launch_that_spills_is_seen(builder):
    """A tile far too large for one warp spills, and is not sound."""
    built = builder.build("mxfp4.w4a16 decode", Launch(128, 128, 64, 1, 1), TARGETS["sm80"])

    assert built.spills > 0
    assert not built.sound


def test_a_lacking_instruction_is_a_failure():
    """`needs` is honoured by whoever builds: what came instead is named, and the build is not sound."""
    built = c.Build("a case", "sm90", Launch(), 1.0, registers=8, instruction="mma.sync.bf16")
    lacking = c._with_need(built, r"wgmma.*e4m3")

    assert "mma.sync.bf16 where wgmma.*e4m3 was to be" == lacking.failure
    assert not lacking.sound
    assert built == c._with_need(built, "bf16")
    assert built == c._with_need(built, "")


def test_a_compiler_that_takes_too_long_is_stopped():
    """The limit ends the process, the next build gets a new one, and the failure says after how long."""
    with c.Builder(limit_s=0.2) as builder:
        built = builder.build("mxfp4.w4a16 decode", None, TARGETS["gfx1201"])

    assert "stopped after 0.2 s" == built.failure


def test_builds_side_by_side_come_in_the_order_asked_for():
    """Two processes, three builds, the slowest first; each is told when it ends."""
    wanted = [("mxfp4.w4a8 prefill", "sm90"), ("moe.combine", "sm80"), ("moe.combine", "gfx950")]
    told = []
    found = c.build_all([(case, None, TARGETS[target]) for case, target in wanted], 100, 2, told.append)

    assert wanted == [(built.case, built.target) for built in found]
    assert sorted(wanted) == sorted((built.case, built.target) for built in told)
    assert all(built.sound for built in found)


def test_a_case_that_cannot_compile_is_one_line(builder):
    """The compiler's refusal becomes the build's failure, not an exception."""
    built = builder.build("mxfp4.w4a8 decode", Launch(16, 64, 48, 4, 1), TARGETS["sm90"])

    assert built.failure
    assert "\n" not in built.failure
    assert not built.sound


@pytest.mark.parametrize("row", TABLE, ids=lambda r: f"{r.ops.split()[0]} {r.archs.split()[0]} {r.tokens}")
def test_no_row_of_the_launch_table_is_idle(row):
    """Each row is the first that fits for at least one op, architecture and batch: none is shadowed."""
    tokens = min(row.tokens, 4096)

    assert any(row.launch == default_launch(op, a, tokens) for op in row.ops.split() for a in row.archs.split())


def test_a_launch_is_looked_up_by_batch():
    """Decode and prefill differ, and what the table does not have is a KeyError that names it."""
    assert (16, 128) == tuple(default_launch("mxfp4.w4a16", "sm90", n).block_m for n in (32, 33))
    with pytest.raises(KeyError, match=r"no launch of mxfp4\.w4a16 on sm70"):
        default_launch("mxfp4.w4a16", "sm70", 1)


def run(*args, **env):
    """The module as a program: (exit status, stdout). It is to build even where this process interprets."""
    argv = [sys.executable, "-m", "vllm_mx_kernels.compile", *args]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "kernels")} | env
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout


def test_the_program_prints_a_table():
    """One op on one target, with TRITON_INTERPRET set as it is in these tests: built all the same."""
    status, said = run("--op", "moe.combine", "--target", "sm90", TRITON_INTERPRET="1")

    assert 0 == status
    assert ["op", "moe.combine"] == [line.split("|")[1].strip() for line in said.splitlines() if "---" not in line]


def test_nothing_asked_is_said():
    """Without a choice the program says what to name."""
    with pytest.raises(SystemExit):
        c.main([])


def test_a_page_of_another_compiler_is_told_apart(tmp_path, capsys):
    """`--check` tells a stale page, with the difference, from one that another Triton made."""
    built = c.Build("a case", "sm90", Launch(16, 64, 128), 1.0, registers=8, instruction="wgmma")
    page, path = c.page([built]), tmp_path / "kernels.md"
    path.write_text(page)
    assert is_current(path, page)
    path.write_text(page.replace("| 8 |", "| 9 |"))
    assert not is_current(path, page)
    assert re.search(r"^-.*\| 9 \|.*\n\+.*\| 8 \|", capsys.readouterr().out, re.MULTILINE)
    path.write_text(re.sub(r"Triton \d[\d.]*\d", "Triton 1.0.0", page))
    assert not is_current(path, page)
    assert "was made with Triton 1.0.0" in capsys.readouterr().out


def test_the_page_has_all_targets_and_no_failure():
    """The committed page: nine targets, each row sound, the native instructions where the issue wants them."""
    rows = [line for line in (ROOT / "docs" / "kernels.md").read_text().splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    one = lambda case, target: next(c[8] for c in cells if c[:2] == [case, target])  # noqa: E731

    assert set(TARGETS) == {c[1] for c in cells}
    assert {"0"} == {c[5] for c in cells}
    assert "kind::mxf4." in one("mxfp4.w4a4 prefill", "sm100")
    assert "v_mfma_scale" in one("mxfp4.w4a4 prefill", "gfx950")
    assert "wgmma" in one("mxfp4.w4a8 prefill", "sm90")
    assert "e4m3" in one("mxfp4.w4a8 prefill", "sm90")


@pytest.mark.slow
def test_the_page_is_current():
    """Every op on every target, built again: the page is what this compiler makes, and all of it is sound."""
    status, said = run("--check", str(ROOT / "docs" / "kernels.md"), "--limit", "300")

    assert (0, "") == (status, said)
