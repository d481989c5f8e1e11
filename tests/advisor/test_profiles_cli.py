"""`advisor profiles`: what is typed, what comes back, on which stream, and with which exit code."""

import json
import os
import statistics
import subprocess
import sys
import time

import pytest

from vllm_advisor import fingerprint
from vllm_advisor.catalog import models
from vllm_advisor.plan import Plan
from vllm_advisor.profile import Measurement, Origin, Profile, Provenance, QualityResult
from vllm_advisor.store import exchange
from vllm_advisor.store.profile_store import ProfileStore
from vllm_advisor.testing import probed
from vllm_advisor.units import Interval
from vllm_advisor.workload import PRESETS


MODEL = models.find("Qwen/Qwen3-8B")
COMMAND = (
    "from vllm_advisor.cli import lazy; lazy.LATER.setdefault('profiles', ('profiles', ''));"
    "from vllm_advisor.cli.app import main; raise SystemExit(main())"
)


def made(output=2000.0, machine="2xL40S", **plan):
    print_ = fingerprint.fingerprint(probed(machine), MODEL, "0.33.0")
    figures = (("output_tok_s", Interval(output, output, output)), ("tpot_ms", Interval(14.0, 15.0, 16.0)))
    measured = Measurement(figures, PRESETS["chat"], 5, 60.0, "vllm bench serve", 1_767_225_600.0)
    check = QualityResult("kl", Interval(0.0, 0.01, 0.02), 0.05, True)
    return Profile(print_, Plan(MODEL.name, **plan), measured, (check,), Provenance(Origin.MEASURED), MODEL.name)


@pytest.fixture
def path(tmp_path, monkeypatch):
    """The store that every command of a test uses; not there yet."""
    file = tmp_path / "advisor.db"
    monkeypatch.setenv("ADVISOR_DATABASE_URL", str(file))
    return file


@pytest.fixture
def stored(path):
    """A store with two profiles; their ids."""
    with ProfileStore.open(path) as store:
        return [store.save_profile(made()), store.save_profile(made(2500.0, tensor_parallel_size=2))]


def run(*args, code=0):
    argv = [sys.executable, "-c", COMMAND, "profiles", *map(str, args)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert "Traceback" not in done.stderr, done.stderr
    assert code == done.returncode, done.stderr
    return done


def answer(*args, code=0):
    return json.loads(run(*args, "--json", code=code).stdout)


def test_no_store_is_no_error(path):
    """Nothing is listed, nothing is made, and stderr says how to begin."""
    done = run("list")
    assert ("", True, False) == (done.stdout, "tuner serve MODEL" in done.stderr, path.exists())
    assert [] == answer("list")["profiles"]


def test_the_list_and_the_page_name_what_counts(stored):
    """Machine, plan, speed and standing; the page has the plan, figures, accuracy and dependencies."""
    text = run("list").stdout
    assert all(word in text for word in (*stored, "2xNVIDIA L40S", "TP2", "2,500", "1024/512 ×32", "measured"))
    page = run("show", stored[0][:6]).stdout
    assert all(
        word in page for word in ("Measured", "2,000", "15.0 (14.0 to 16.0)", "kl", "passed", "580.95", "unknown:")
    )
    assert set(stored) == {row["id"] for row in answer("list", "--model", MODEL.name)["profiles"]}
    assert [] == answer("list", "--model", "org/other")["profiles"]
    assert "measured" == answer("show", stored[1])["profile"]["provenance"]["origin"]


def test_a_difference_is_exit_1(stored):
    """Plan and figures that are not the same; a profile and itself are."""
    rows = answer("diff", *stored, code=1)["differences"]
    assert {("plan", "tensor_parallel_size"), ("figures", "output_tok_s")} == {
        (row["part"], row["name"]) for row in rows
    }
    assert "no difference\n" == run("diff", stored[0], stored[0]).stdout


def test_a_profile_travels_to_another_store(stored, tmp_path):
    """Exported, signed, imported into a new database: there it is a prior."""
    file, key, other = tmp_path / "p.toml", tmp_path / "KEY", tmp_path / "other.db"
    key.write_bytes(os.urandom(32))
    run("export", stored[0], "--out", file, "--key", key)
    assert run("export", stored[0]).stdout.splitlines()[-1] == file.read_text().splitlines()[-1]
    number = answer("import", file, "--key", key, "--store", other)["imported"][0]["id"]
    assert number != stored[0]
    assert "imported" in run("list", "--store", other).stdout
    assert "comes from" in run("diff", stored[0], file, code=1).stdout
    verdict = answer("validate", number, "--store", other, code=1)
    assert (True, False) == (verdict["valid"], verdict["truth"])
    assert "not measured here" in verdict["why"]


@pytest.mark.usefixtures("stored")
def test_one_bad_file_imports_none(tmp_path):
    """All or nothing, exit 2, the file named."""
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    text = exchange.export(made(3000.0))
    good.write_text(text)
    bad.write_text(text.replace("3000.0", "9000.0"))
    done = run("import", good, bad, code=2)
    assert "bad.toml" in done.stderr
    assert 2 == len(answer("list")["profiles"])
    assert "well formed" in run("validate", good).stdout
    run("validate", bad, code=2)


def test_validate_says_what_keeps_it_from_being_true_here(stored):
    """A machine by name has no driver: exit 1, the reading named."""
    why = answer("validate", stored[0], "--gpu", "2xL40S", code=1)["why"]
    assert why.startswith("driver was not read now")


def test_measuring_needs_the_tuner(stored, monkeypatch, tmp_path):
    """Without its command: exit 2 and what to install; with one: it is called with the profile's id."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "vllm-advisor[tuner]" in run("validate", stored[0], "--measure", code=2).stderr
    fake = tmp_path / "tuner"
    fake.write_text(f"#!{sys.executable}\nimport sys; print(sys.argv[1:]); sys.exit(1)\n")
    fake.chmod(0o755)
    assert (
        f"['serve', 'Qwen/Qwen3-8B', '--profile', '{stored[0]}']\n"
        == run("validate", stored[0], "--measure", code=1).stdout
    )


def test_removing_is_all_or_nothing(stored):
    """One that is not there: exit 4, nothing goes."""
    run("rm", stored[0], "zzz", code=4)
    assert 2 == len(answer("list")["profiles"])
    assert [stored[0]] == answer("rm", stored[0][:6])["removed"]
    assert [stored[1]] == [row["id"] for row in answer("list")["profiles"]]


@pytest.mark.usefixtures("path")
def test_what_ships_is_listed_and_shown():
    """Public figures and the seed's rows, each with its source."""
    rows = answer("list", "--shipped")["profiles"]
    assert {"reported", "seed"} == {row["kind"] for row in rows}
    assert all(row["provenance"]["source"] for row in rows)
    assert "seed-mi300x" in run("list", "--shipped").stdout
    assert "fp8_per_channel" in run("show", "seed-mi300x").stdout


def test_a_broken_store_is_exit_4(path):
    """One line and a hint."""
    path.write_text("no database" * 100)
    done = run("list", code=4)
    assert ["error:", "hint:"] == [line.split(" ")[0] for line in done.stderr.splitlines()]


@pytest.mark.slow
def test_a_thousand_profiles_do_not_slow_the_start(path):
    """Medians of 10 in one run: a recommendation that asks the store within 2.5 x `import typer, rich.table`."""
    with ProfileStore.open(path) as store:
        for i in range(1000):
            store.save_profile(made(1000.0 + i, "2xL40S" if i % 20 == 0 else f"{1 + i % 8}xH100"))
    script = (
        "import sys; sys.argv = ['advisor', 'recommend', 'Qwen/Qwen3-8B', '--gpu', '2xL40S'];"
        "from vllm_advisor.cli.app import main; raise SystemExit(main())"
    )
    commands = {"base": "import typer, rich.table", "ours": script}
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    times = {name: [] for name in commands}
    for _ in range(11):
        for name, code in commands.items():
            start = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
            )
            times[name].append(time.perf_counter() - start)
    assert "corrected by" in done.stdout
    medians = {name: statistics.median(found[1:]) for name, found in times.items()}
    assert medians["ours"] <= 2.5 * medians["base"], medians
