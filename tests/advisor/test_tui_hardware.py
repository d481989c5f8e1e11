"""Step 1 of the wizard: the machine by keys and by mouse, what it shows of it, and where it fails."""

import json

import pytest


pytest.importorskip("textual")

from textual.widgets import Static

from vllm_advisor.catalog import gpus
from vllm_advisor.hardware import Gpu, Link, Node, Topology, Unknown, Vendor
from vllm_advisor.probe import detect, recorded
from vllm_advisor.testing import HOST, probed
from vllm_advisor.tui import testing
from vllm_advisor.tui.app import Wizard
from vllm_advisor.tui.glyphs import UTF8
from vllm_advisor.tui.state import State
from vllm_advisor.tui.testing import click, press, status, write
from vllm_advisor.tui.widgets import topology
from vllm_advisor.tui.widgets.field import Field
from vllm_advisor.tui.widgets.lists import Search, VimList


def drive(tmp_path, steps, **fields):
    """Run the wizard on its first step, and return what `steps` returned."""
    app = Wizard(State(**({"gpu": "2xL40S"} | fields)), file=tmp_path / "state.json", glyphs=UTF8)
    return testing.drive(app, steps)


def names(pilot):
    return [str(option.prompt).split("  ")[-1] for option in pilot.app.screen.query_one("#catalog", VimList).options]


def found(pilot, name="node"):
    return str(pilot.app.screen.query_one(f"#{name}", Static).content)


def test_the_list_follows_what_is_typed_and_enter_takes_a_device(tmp_path):
    """The number typed before the name is kept with the device that the list gives."""

    async def steps(pilot):
        pilot.app.screen.query_one("#machine", Search).value = ""
        await write(pilot, "4x h100")
        listed = names(pilot)
        await press(pilot, "down", "j", "enter")
        return listed, pilot.app.state, found(pilot, "headline")

    listed, state, headline = drive(tmp_path, steps)
    assert ["H100 PCIe", "H100 SXM", "H100 NVL"] == listed
    assert ("4xNVIDIA H100 SXM", "") == (state.gpu, state.node)
    assert "4xNVIDIA H100 SXM" == headline


def test_a_typed_machine_shows_who_reaches_whom(tmp_path):
    """Rows and columns are devices, and the sign in the cells is explained below."""

    async def steps(pilot):
        pilot.app.screen.query_one("#machine", Search).value = "8xH100"
        await press(pilot, "enter")
        return found(pilot).splitlines()

    lines = drive(tmp_path, steps)
    assert "0-7  NVIDIA H100 SXM, sm90, 79.2 GiB" in lines
    assert " 1  NV  · NV NV NV NV NV NV" in lines
    assert "NV  NVLink, 450 GB/s one way, 28 pairs" in lines


def test_a_name_that_is_nobodys_says_the_nearest(tmp_path):
    """One line, with what helps, and the way back is one key."""

    async def steps(pilot):
        pilot.app.screen.query_one("#machine", Search).value = "H1000"
        await press(pilot, "enter")
        said = status(pilot)
        await press(pilot, "ctrl+z")
        return said, pilot.app.state.gpu, status(pilot)

    said, gpu, after = drive(tmp_path, steps)
    assert said.startswith("✗ no GPU named 'H1000' in the catalog")
    assert "nearest names are" in said
    assert ("2xL40S", "") == (gpu, after)


def test_no_gpu_is_said_with_what_was_taken_instead(tmp_path, monkeypatch):
    """The processor stands in, marked by a sign, with what each driver answered."""
    processor = Gpu("CPU x86-64", Vendor.CPU, "cpu-x86_64", 8 << 30, 4e10, 1.0)
    why = f"no GPU was found, so this is the processor. NVIDIA: {Unknown('no driver').why}. AMD: no driver"
    none = Node((processor,), host=HOST, origin="probe", warnings=(why,))
    monkeypatch.setattr(detect, "detect", lambda: none)

    async def steps(pilot):
        return found(pilot, "headline"), found(pilot, "warnings")

    headline, warnings = drive(tmp_path, steps, gpu="")
    assert "! No GPU was found: the processor is taken." == headline
    assert warnings.startswith("! no GPU was found, so this is the processor. NVIDIA: no driver. AMD: no driver")


def test_the_mouse_chooses_a_device_and_how_many(tmp_path):
    """A click in the list, then one far right on the slider."""

    async def steps(pilot):
        await click(pilot, "#catalog", (4, 2))
        first = pilot.app.state.gpu
        await pilot.click("#count", offset=(28, 0))
        await testing.settled(pilot)
        return first, pilot.app.state.gpu

    first, many = drive(tmp_path, steps)
    assert f"2x{gpus.names()[0]}" == first
    assert f"8x{gpus.names()[0]}" == many


def test_the_slider_counts_devices_by_keys(tmp_path):
    """Right doubles; more than one machine holds is refused in a line."""

    async def steps(pilot):
        pilot.app.screen.query_one("#count", Field).focus()
        await press(pilot, "right", "right")
        eight = pilot.app.state.gpu
        await press(pilot, "3", "2", "enter")
        return eight, status(pilot)

    eight, said = drive(tmp_path, steps)
    assert "8xL40S" == eight
    assert "one machine holds at most" in said


def test_a_recorded_machine_is_opened_by_its_file(tmp_path):
    """What `advisor probe --save` wrote on another machine."""
    file = tmp_path / "box.json"
    recorded.save(probed("2xMI300X"), file)

    async def steps(pilot):
        pilot.app.screen.query_one("#machine", Search).value = str(file)
        await press(pilot, "enter")
        return pilot.app.state, found(pilot, "headline")

    state, headline = drive(tmp_path, steps)
    assert ("", str(file)) == (state.gpu, state.node)
    assert "2xAMD Instinct MI300X" == headline


def test_a_broken_file_is_one_line(tmp_path):
    """And nothing of the machine before it is lost."""
    file = tmp_path / "box.json"
    file.write_text("{", encoding="utf-8")

    async def steps(pilot):
        pilot.app.screen.query_one("#machine", Search).value = str(file)
        await press(pilot, "enter")
        return status(pilot)

    assert "is not JSON" in drive(tmp_path, steps)


def test_saving_writes_once_and_never_over_a_file(tmp_path, monkeypatch):
    """The second time the file is there, and stays as it is."""
    monkeypatch.chdir(tmp_path)

    async def steps(pilot):
        await press(pilot, "down", "w")
        before = (tmp_path / "node.json").read_bytes()
        await press(pilot, "w")
        return before, status(pilot)

    before, said = drive(tmp_path, steps)
    assert before == (tmp_path / "node.json").read_bytes()
    assert "NVIDIA L40S" == json.loads(before)["gpus"][0]["name"]
    assert said.startswith("node.json exists and is not overwritten")


def test_help_opens_while_a_name_is_typed(tmp_path):
    """A question mark is never part of a name."""

    async def steps(pilot):
        await press(pilot, "question_mark")
        return type(pilot.app.screen).__name__

    assert "Help" == drive(tmp_path, steps)


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ((), ["links: none known, through the host"]),
        (
            (Link(0, 1, "nvlink", 100.0),),
            ["     0  1  2", " 0   · NV --", " 1  NV  · --", " 2  -- --  ·"],
        ),
        (
            (Link(0, 1, "pcie", 25.0), Link(0, 2, "pcie", 12.0), Link(1, 2, "pcie", 12.0)),
            ["      0   1   2", " 0    · PCa PCb", " 1  PCa   · PCb", " 2  PCb PCb   ·"],
        ),
    ],
)
def test_a_matrix_tells_rates_of_one_kind_apart(links, expected):
    """And pairs without a link go through the host."""
    drawn = topology.matrix(Node((gpus.find("L40S"),) * 3, Topology(links)))
    assert expected == drawn[: len(expected)]


def test_pictures(tmp_path):
    """Eight devices with their matrix, at every size."""

    async def steps(pilot):
        await testing.snapshots(pilot, "hardware")

    drive(tmp_path, steps, gpu="8xH100")
