"""Plans over loads: which nothing beats, the chart of them, and the page of an answer."""

import json
import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from vllm_advisor.catalog import gpus, models
from vllm_advisor.cli.pareto import app, report
from vllm_advisor.errors import BadInput, NoFeasiblePlan, UsageError
from vllm_advisor.facts import Facts
from vllm_advisor.pareto import Point, frontier, label, points
from vllm_advisor.render import chart
from vllm_advisor.units import Interval
from vllm_advisor.vllm import surface
from vllm_advisor.workload import PRESETS


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def facts(model="Qwen/Qwen3-8B", machine="2xL40S"):
    return Facts(gpus.node(machine), models.find(model), PRESETS["chat"], surface.load("0.33.0"))


def point(per_user, per_gpu):
    return Point(1, SimpleNamespace(), Interval(*[per_gpu] * 3), Interval(*[per_user] * 3))


def run(command, *args):
    return CliRunner().invoke(command, list(args), catch_exceptions=False)


def test_the_frontier_is_what_nothing_beats():
    """Of five points two are beaten in both figures; the rest stand, from the most a device on."""
    given = [point(10, 100), point(20, 80), point(15, 70), point(30, 10), point(9, 99)]

    assert [(10, 100), (20, 80), (30, 10)] == [(p.per_user.mid, p.per_gpu.mid) for p in frontier(given)]


def test_equal_points_stand_once():
    """A plan that ties with another in both figures adds nothing."""
    assert 1 == len(frontier([point(10, 100), point(10, 100)]))


def test_every_level_brings_its_own_plans():
    """Two loads give points of both, and more requests give more tokens a device."""
    found = points(facts(), (), None, (1, 64))
    most = {level: max(p.per_gpu.mid for p in found if p.concurrency == level) for level in (1, 64)}

    assert {1, 64} == {p.concurrency for p in found}
    assert most[64] > 4 * most[1]


def test_points_are_the_same_twice():
    """Nothing of it depends on a clock or on order in memory."""
    assert points(facts(), (), None, (8,)) == points(facts(), (), None, (8,))


def test_what_one_user_sees_is_the_inverse_of_time_a_token():
    """The interval turns around with it."""
    one = points(facts(), (), None, (8,))[0]

    assert pytest.approx(1000) == one.per_user.low * one.ranked.estimate.tpot_ms.high
    assert one.per_user.low <= one.per_user.mid <= one.per_user.high


def test_a_label_tells_plans_apart():
    """Layout and weights always, the cache where it is not the default."""
    labels = {label(p) for p in points(facts(), (), None, (8,))}

    assert "TP1, bf16" in labels or "TP1, bfloat16" in labels
    assert any("KV fp8" in text for text in labels)


def test_the_chart_has_letters_for_the_best_and_fits_its_width():
    """Two best, one other; no line is wider than asked for, and ASCII is enough where it has to be."""
    dots = [chart.Dot(10, 100, True, "a"), chart.Dot(100, 10, True, "b"), chart.Dot(20, 20, False, "c")]
    lines = chart.text(dots, width=40, height=10, utf8=False)

    assert {"A", "B"} <= set("".join(lines[1:11]))
    assert all(len(line) <= 60 for line in lines)
    assert "".join(lines).isascii()


def test_no_dots_are_no_chart():
    """Nothing to draw draws nothing."""
    assert [] == chart.text([])


def test_the_svg_is_well_formed_whatever_a_model_is_called():
    """A hostile name comes out as text."""
    hostile = '<script>alert("x")</script>&'
    root = ET.fromstring(chart.svg([chart.Dot(1, 2, True, hostile)], title=hostile))  # noqa: S314 - our own text

    titles = [e.text for e in root.iter("{http://www.w3.org/2000/svg}title")]
    assert [hostile, hostile] == titles


def test_pareto_prints_chart_and_table_and_writes_files(tmp_path):
    """Text on stdout, an SVG and a page beside it."""
    svg, html = tmp_path / "p.svg", tmp_path / "p.html"
    done = run(app, "Qwen/Qwen3-8B", "--gpu", "L40S", "--levels", "1,32", "--svg", str(svg), "--html", str(html))

    assert 0 == done.exit_code
    assert "Nothing beats these in both (estimates)" in done.stdout
    assert svg.read_text(encoding="utf-8").startswith("<svg")
    assert "<svg" in html.read_text(encoding="utf-8")


def test_pareto_json_marks_the_frontier():
    """As many marked points as the frontier of all of them has."""
    found = json.loads(run(app, "Qwen/Qwen3-8B", "--gpu", "L40S", "--levels", "1,8", "--json").stdout)["points"]
    marked = [p for p in found if p["frontier"]]

    assert {1, 8} == {p["concurrency"] for p in found}
    assert 0 < len(marked) < len(found)


@pytest.mark.parametrize("levels", ["0", "a,b", "-1,2", ","])
def test_a_list_of_loads_has_to_be_one(levels):
    """One line, with an example."""
    with pytest.raises(UsageError, match="no list of loads"):
        run(app, "Qwen/Qwen3-8B", "--gpu", "L40S", "--levels", levels)


def test_nothing_that_fits_is_no_chart():
    """The answer is no, as an error with exit code 1."""
    with pytest.raises(NoFeasiblePlan):
        run(app, "MiniMaxAI/MiniMax-M3", "--gpu", "L4", "--levels", "1")


def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    """The folder is not there."""
    with pytest.raises(BadInput, match="cannot be written"):
        run(app, "Qwen/Qwen3-8B", "--gpu", "L40S", "--levels", "1", "--svg", str(tmp_path / "no" / "p.svg"))


def test_png_without_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    """The extra is named, and the format that needs none."""
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(UsageError, match="needs matplotlib"):
        run(app, "Qwen/Qwen3-8B", "--gpu", "L40S", "--levels", "1", "--png", str(tmp_path / "p.png"))


def written(tmp_path, *args, code=0):
    out = tmp_path / "report.html"
    assert code == run(report, *args, "--html", str(out)).exit_code
    return out


def test_a_report_has_every_part_and_nothing_from_elsewhere(tmp_path):
    """Hardware, command, plans, memory, chart and reasons; no script and no address to load from."""
    text = written(tmp_path, "openai/gpt-oss-120b", "--gpu", "8xH100").read_text(encoding="utf-8")

    for part in ("Hardware and load", "Command", "Plans, best first", "Memory of plan 1", "<svg", "Why"):
        assert part in text
    assert not re.search(r"<script|src=|href=|url\(|@import", text)


def test_a_report_of_a_no_says_what_would_fit(tmp_path):
    """Exit code 1, and the page with the nearest misses."""
    text = written(tmp_path, "MiniMaxAI/MiniMax-M3", "--gpu", "2xL4", code=1).read_text(encoding="utf-8")

    assert "No plan fits." in text


@pytest.mark.browser
def test_a_report_renders_in_a_browser(tmp_path):
    """Headless Chromium lays the page out: the title is set, the chart has its circles, the picture is not empty."""
    if not CHROMIUM:
        pytest.skip("no chromium")
    page = written(tmp_path, "openai/gpt-oss-120b", "--gpu", "8xH100")
    picture = tmp_path / "page.png"
    common = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-component-update", "--no-first-run", f"--user-data-dir={tmp_path / 'profile'}",
    ]  # fmt: skip
    dom = subprocess.run(
        [*common, "--dump-dom", page.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    subprocess.run([*common, f"--screenshot={picture}", "--window-size=900,1600", page.as_uri()],
                   capture_output=True, check=True, timeout=120, env=os.environ | {"HOME": str(tmp_path)})  # fmt: skip

    assert "<title>openai/gpt-oss-120b on 8xNVIDIA H100 SXM</title>" in dom.stdout
    assert dom.stdout.count("<circle") > 5
    assert picture.stat().st_size > 20_000
