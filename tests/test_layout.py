"""The house keeps its walls: four prefixed packages, no name that shadows another project's, one light import path."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"vllm_advisor", "vllm_tuner", "vllm_mx_kernels", "vllm_profiles"}


def python(code: str, *args: str) -> str:
    """What a fresh interpreter prints; `-P`: the folder it stands in is not importable."""
    argv = [sys.executable, "-P", "-c", code, *args]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", ["kernels", "advisor", "tuner", "profiles"])
def test_folder_names_are_not_importable(name):
    """No top-level folder of the project answers to its own name, so it can't shadow another project's package."""
    find = f"import importlib.util as u; s = u.find_spec({name!r}); "
    where = python(find + "print(s and (s.origin or s.submodule_search_locations))")

    assert str(ROOT) not in where


def test_code_folders_have_no_init():
    """A project folder holds one prefixed package and no __init__.py of its own; tests have none anywhere."""
    stray = [p for f in ("advisor", "tuner", "kernels", "profiles") for p in (ROOT / f).glob("__init__.py")]

    assert [] == stray + list((ROOT / "tests").rglob("__init__.py"))


@pytest.mark.slow
def test_wheel_holds_exactly_the_four_packages(tmp_path):
    """The built wheel holds the four packages, their data and types, and nothing else."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()

    assert PACKAGES == {n.split("/")[0] for n in names if ".dist-info" not in n}
    assert {
        "vllm_advisor/py.typed",
        "vllm_advisor/catalog/gpus.toml",
        "vllm_advisor/catalog/models/index.json",
        "vllm_advisor/vllm/surfaces/0.33.0.json",
    } <= set(names)


FORBIDDEN = {
    "torch",
    "triton",
    "textual",
    "vllm",
    "transformers",
    "sqlmodel",
    "alembic",
    "pydantic",
    "httpx",
    "huggingface_hub",
}


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["recommend", "openai/gpt-oss-120b", "--gpu", "8xH100"],
        ["recommend", "openai/gpt-oss-120b", "--gpu", "8xH100", "--json"],
        ["matrix", "H100"],
    ],
    ids=" ".join,
)
def test_the_light_path_loads_no_heavy_library(args):
    """Help and a whole recommendation import none of the libraries that cost more than the answer."""
    code = (
        "import sys; from vllm_advisor.cli.app import main\n"
        "sys.argv = ['advisor', *sys.argv[1:]]\n"
        "try: main()\n"
        "except SystemExit as e: assert e.code in (None, 0), e.code\n"
        "print('\\nLOADED', *sorted({m.split('.')[0] for m in sys.modules}))"
    )
    loaded = python(code, *args).rsplit("LOADED", 1)[1].split()

    assert set() == FORBIDDEN & set(loaded)
