"""Building the C++ path: once for all processes, never half, and without a compiler one line and the twin."""

import logging
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest


torch = pytest.importorskip("torch", reason="ops are functions of torch tensors")

from vllm_mx_kernels import cpu  # noqa: E402
from vllm_mx_kernels.cpu import _build  # noqa: E402
from vllm_mx_kernels.mxfp4 import matmul_mxfp4, quantize_mxfp4, quantize_mxfp4_torch  # noqa: E402
from vllm_mx_kernels.testing import difficult  # noqa: E402


CPUINFO = Path("/proc/cpuinfo")
FLAGS = CPUINFO.read_text().split() if CPUINFO.exists() else ()
KERNELS = Path(_build.__file__).parent
PACKAGES = KERNELS.parents[1]


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    """An empty cache, a compiler that is not there, and a package that has not been loaded."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "/nowhere/c++")
    monkeypatch.setattr(cpu, "_loaded", cache(cpu._loaded.__wrapped__))
    return tmp_path


def test_without_a_compiler_it_says_so_once_and_the_twin_works(no_compiler, caplog, monkeypatch):
    """One warning of one line, however many calls; results are the twin's; nothing half-built stays."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    x = difficult(4, 64)
    with caplog.at_level(logging.WARNING):
        weight = quantize_mxfp4(x)
        product = matmul_mxfp4(x, weight)

    assert torch.equal(quantize_mxfp4_torch(x).codes, weight.codes)
    assert (4, 4) == product.shape
    assert ["vllm_mx_kernels.cpu"] == [record.name for record in caplog.records]
    assert 1 == len(caplog.text.strip().splitlines())
    assert [] == list(no_compiler.rglob("*.so"))


def test_a_cache_that_cannot_be_written_is_one_reason_more(no_compiler, monkeypatch):
    """A file in the place of the cache's folder: BuildError, not an OSError."""
    (no_compiler / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(no_compiler / "file"))
    with pytest.raises(_build.BuildError, match="file"):
        _build.library()


@pytest.mark.skipif("amx_tile" not in FLAGS, reason="a processor without AMX")
def test_a_process_may_use_tiles_once_the_operators_are_there():
    """Linux's own answer, before and after: bit 18 of what ARCH_GET_XCOMP_PERM (0x1022) fills in."""
    code = """if True:
        import ctypes
        from vllm_mx_kernels import cpu
        may = ctypes.c_uint64()
        for step in (lambda: None, cpu.available):
            step()
            ctypes.CDLL(None).syscall(158, 0x1022, ctypes.byref(may))  # arch_prctl
            print(may.value >> 18 & 1)
    """
    env = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    said = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True).stdout

    assert ["0", "1"] == said.split()


def test_tiles_are_asked_for_as_soon_as_there_is_a_library(monkeypatch):
    """On any processor: torch knows which has them. And a torch that cannot be asked is none the worse."""
    asked = []
    monkeypatch.setattr(torch.ops, "load_library", lambda _: None)
    monkeypatch.setattr(torch.library, "register_fake", lambda *_: None)
    monkeypatch.setattr(_build, "library", lambda: Path("x.so"))
    monkeypatch.setattr(torch.cpu, "_init_amx", lambda: asked.append(1), raising=False)
    cpu._load()
    monkeypatch.delattr(torch.cpu, "_init_amx")
    cpu._load()

    assert [1] == asked


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (
            "[1/2] c++\nops.cpp:3:1: fatal error: omp.h: No such file\nninja: build stopped",
            "ops.cpp:3:1: fatal error: omp.h",
        ),
        ("Traceback\nRuntimeError: Ninja is required\n", "RuntimeError: Ninja is required"),
        ("", "the compiler said nothing"),
    ],
)
def test_the_reason_is_the_line_that_names_it(output, says):
    """The first error of a compiler, an exception's own line, or that there was none."""
    assert _build._reason(output).startswith(says)


def test_sources_and_torch_make_the_key(monkeypatch, tmp_path):
    """A changed source or another torch never meets an old library."""
    before = _build._key()
    for source in (*KERNELS.glob("*.cpp"), *KERNELS.glob("*.h")):
        shutil.copy(source, tmp_path)
    monkeypatch.setattr(_build, "SOURCES", tmp_path)

    assert before == _build._key()
    (tmp_path / "body.h").write_text("")
    assert before != _build._key()
    monkeypatch.undo()
    monkeypatch.setattr(torch, "__version__", "0.0")
    assert before != _build._key()


@pytest.mark.slow
def test_processes_that_start_together_build_once(tmp_path):
    """Three at once on an empty cache that a killed build left dirty: all work, and one compiler ran."""
    compiler, log = tmp_path / "c++", tmp_path / "log"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *-shared*) echo link >> {log};; esac\nexec {shutil.which("g++")} "$@"\n'
    )
    compiler.chmod(0o755)
    left = tmp_path / "vllm-advisor" / "kernels" / _build._key() / "build"
    left.mkdir(parents=True)
    (left / "lock").write_text("")
    env = {**os.environ, "PYTHONPATH": str(PACKAGES), "XDG_CACHE_HOME": str(tmp_path), "CXX": str(compiler)}
    code = "from vllm_mx_kernels import cpu; assert cpu.available()"
    started = [subprocess.Popen([sys.executable, "-c", code], env=env) for _ in range(3)]

    assert [0, 0, 0] == [process.wait(timeout=500) for process in started]
    assert ["link"] == log.read_text().split()
    assert not left.exists()


# Every kernel on buffers of exactly the size that it may touch, each an allocation of its own.
BOUNDS = r"""
#include "kernels.h"
#include <cstdio>
#include <vector>
template <class T> auto exactly(size_t size, T value) { return std::vector<T>(size, value); }
void multiply(const mx::Kernels& kernels, int64_t m, int64_t n, int64_t k, mx::Tile tile) {
  const int64_t group = 8 * kernels.lanes, wide = (k + group - 1) / group * group;
  auto x = exactly<float>(m * k, 1), arranged = exactly<float>(m * wide, 0), y = exactly<float>(m * n, 0);
  auto codes = exactly<uint8_t>(n * k / 2, 0x22), scales = exactly<uint8_t>(n * k / 32, 127);
  for (int64_t i = 0; i < m; ++i) kernels.arrange(x.data() + i * k, k, arranged.data() + i * wide);
  kernels.multiply(arranged.data(), m, k, codes.data(), scales.data(), 0, n, n, y.data(), tile);
  for (float value : y) if (value != k) std::printf("%s %ld %ld %ld: %f\n", kernels.name, m, n, k, value);
}
void convert(const mx::Kernels& kernels, int64_t blocks) {
  auto codes = exactly<uint8_t>(blocks * 16, 0xFF), scales = exactly<uint8_t>(blocks, 0xFF);
  auto wide = exactly<uint32_t>(blocks * 32, 0x7F7FFFFF);
  auto narrow = exactly<uint16_t>(blocks * 32, 0xFBFF);
  kernels.quantize(wide.data(), mx::Kind::float32, blocks, 1, codes.data(), scales.data());
  kernels.quantize(narrow.data(), mx::Kind::float16, blocks, 0, codes.data(), scales.data());
  kernels.quantize(narrow.data(), mx::Kind::bfloat16, blocks, 1 << 23, codes.data(), scales.data());
  for (bool streams : {false, true}) {
    kernels.dequantize(codes.data(), scales.data(), blocks, mx::Kind::float32, wide.data(), streams);
    kernels.dequantize(codes.data(), scales.data(), blocks, mx::Kind::bfloat16, narrow.data(), streams);
  }
}
int main() {
  std::vector<mx::Tile> tiles;
  for (int64_t rows : {1, 2, 4}) for (int64_t tokens : {1, 2, 4, 8}) for (int64_t scaled : {0, 1, 2})
    tiles.push_back({rows, tokens, scaled, rows == 2 ? 512 : 0});
  std::vector<const mx::Kernels*> all{&mx::plain};
#if defined(__x86_64__)
  all.insert(all.end(), {&mx::avx2, &mx::avx512});
#endif
  for (auto* kernels : all) {
    if (!kernels->runs_here()) continue;
    for (int64_t m = 0; m <= 17; ++m)
      for (int64_t n : {0, 1, 3, 5, 7}) for (int64_t k : {0, 32, 64, 96, 128, 160, 288})
        for (auto& tile : tiles) multiply(*kernels, m, n, k, tile);
    for (int64_t blocks : {0, 1, 2, 5}) convert(*kernels, blocks);
  }
}
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_nothing_beyond_a_buffer_is_touched_and_nothing_is_undefined(tmp_path):
    """The address and undefined-behaviour sanitizers are silent at odd sizes, and products are right."""
    (tmp_path / "bounds.cpp").write_text(BOUNDS)
    sources = [str(KERNELS / f"{name}.cpp") for name in ("plain", "avx2", "avx512")]
    flags = ["-std=c++17", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{KERNELS}"]
    subprocess.run(["g++", *flags, "bounds.cpp", *sources, "-o", "bounds"], cwd=tmp_path, check=True)
    done = subprocess.run(["./bounds"], cwd=tmp_path, check=False, capture_output=True, text=True)

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
