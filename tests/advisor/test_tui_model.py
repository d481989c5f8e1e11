"""Step 2 of the wizard: searching, looking without the network, choosing, and every reason why not."""

import json

import pytest


pytest.importorskip("textual")

from textual.widgets import Static

from vllm_advisor.catalog import hub_files, hub_remote
from vllm_advisor.errors import UnknownModel
from vllm_advisor.testing import TINY_LLAMA
from vllm_advisor.tui import testing
from vllm_advisor.tui.app import Wizard
from vllm_advisor.tui.glyphs import UTF8
from vllm_advisor.tui.screens.model import _size
from vllm_advisor.tui.state import State
from vllm_advisor.tui.testing import click, press, status, write
from vllm_advisor.tui.widgets.lists import Search, VimList


def drive(tmp_path, steps, **fields):
    """Run the wizard on its second step, and return what `steps` returned."""
    app = Wizard(State(**({"gpu": "2xL40S", "step": "model"} | fields)), file=tmp_path / "state.json", glyphs=UTF8)
    return testing.drive(app, steps)


def listed(pilot):
    return [str(option.prompt).split(None, 1)[-1] for option in pilot.app.screen.query_one("#models", VimList).options]


def search(pilot, text):
    pilot.app.screen.query_one("#search", Search).value = text


def shown(pilot):
    return " ".join(testing.text(pilot.app).split())


@pytest.fixture
def folder(tmp_path):
    """A folder with the smallest model that is one."""
    made = tmp_path / "models" / "tiny"
    made.mkdir(parents=True)
    (made / "config.json").write_text(json.dumps(TINY_LLAMA), encoding="utf-8")
    return made


def test_words_in_any_order_find_and_enter_chooses(tmp_path):
    """The facts of what lies under the cursor are read before it is chosen; Enter again goes on."""

    async def steps(pilot):
        await write(pilot, "8b qwen3")
        names = listed(pilot)
        await press(pilot, "down", "j", "k")
        looked, before = shown(pilot), pilot.app.state.model
        await press(pilot, "enter")
        chosen = pilot.app.state
        await press(pilot, "enter")
        return names, looked, before, chosen, pilot.app.state.step

    names, looked, before, chosen, step = drive(tmp_path, steps)
    assert "Qwen/Qwen3-8B" == names[0]
    assert all("8B" in name and "wen3" in name for name in names)
    assert "parameters 8.19 B" in looked
    assert "36 full attention" in looked
    assert "" == before
    assert ("Qwen/Qwen3-8B", "workload") == (chosen.model, step)


def test_a_whole_name_is_chosen_from_the_field(tmp_path):
    """In any case, and without its publisher where one model alone has it."""

    async def steps(pilot):
        await write(pilot, "gpt-oss-120B")
        await press(pilot, "enter")
        return pilot.app.state.model, shown(pilot)

    model, text = drive(tmp_path, steps)
    assert "openai/gpt-oss-120b" == model
    assert "128, 4 a token" in text
    assert "18 window of 128" in text


def test_what_nobody_is_called_lists_the_nearest(tmp_path):
    """And Enter says so in the line below, with the names; nothing is chosen."""

    async def steps(pilot):
        await write(pilot, "qwenn3 8bb")
        names = listed(pilot)
        await press(pilot, "enter")
        return names, status(pilot), pilot.app.state.model

    names, said, model = drive(tmp_path, steps)
    assert 5 == len(names)
    assert "nearest in the catalog" in said
    assert "" == model


def test_only_enter_on_a_full_name_asks_the_hub(tmp_path, monkeypatch):
    """Typing, listing and looking never do."""
    asked = []
    monkeypatch.setattr(hub_remote, "offline_by_environment", lambda: False)

    def download(name, revision):
        asked.append((name, revision))
        raise UnknownModel(f"the hub has no repository {name}", "check the spelling")

    monkeypatch.setattr(hub_remote, "download", download)

    async def steps(pilot):
        await write(pilot, "nobody/knows")
        await press(pilot, "down", "j")
        before = list(asked)
        pilot.app.screen.query_one("#search", Search).focus()
        search(pilot, "nobody/knows@v2")
        await press(pilot, "enter")
        return before, status(pilot), pilot.app.state.model

    before, said, model = drive(tmp_path, steps)
    assert ([], [("nobody/knows", "v2")]) == (before, asked)
    assert said.startswith("✗ the hub has no repository nobody/knows")
    assert "" == model


def test_offline_is_respected(tmp_path):
    """One key switches it on, and then a full name fails without a look outside."""

    async def steps(pilot):
        await press(pilot, "down", "o", "slash")
        search(pilot, "nobody/knows")
        await press(pilot, "enter")
        return pilot.app.state.offline, shown(pilot), status(pilot)

    offline, text, said = drive(tmp_path, steps)
    assert offline
    assert "the network is never asked" in text
    assert "the network is switched off" in said


def test_a_refused_model_says_its_reason(tmp_path):
    """In the list by a sign, in the line below by words."""

    async def steps(pilot):
        await write(pilot, "whisper turbo")
        row = str(pilot.app.screen.query_one("#models", VimList).options[0].prompt)
        await press(pilot, "down", "enter")
        return row, status(pilot), pilot.app.state.model

    row, said, model = drive(tmp_path, steps)
    assert row.startswith("✗")
    assert "openai/whisper-large-v3-turbo: WhisperForConditionalGeneration is an encoder-decoder model" in said
    assert "" == model


def test_a_folder_is_walked_to_and_chosen(tmp_path, folder):
    """A folder without a model is opened, one with a model is taken."""

    async def steps(pilot):
        search(pilot, f"{tmp_path}/mod")
        await testing.settled(pilot)
        above = listed(pilot)
        await press(pilot, "down", "enter")
        below = pilot.app.screen.query_one("#search", Search).value
        await press(pilot, "down", "enter")
        return len(above), below, pilot.app.state.model, shown(pilot)

    above, below, model, text = drive(tmp_path, steps)
    assert (1, f"{folder.parent}/", str(folder)) == (above, below, model)
    assert "a folder of this machine" in text


def test_a_broken_folder_is_one_line(tmp_path, folder):
    """Its facts say why when it is looked at, and Enter says so in the line below."""
    (folder / "config.json").write_text("{", encoding="utf-8")

    async def steps(pilot):
        search(pilot, str(folder))
        await press(pilot, "enter")
        return status(pilot), pilot.app.state.model

    said, model = drive(tmp_path, steps)
    assert "is not JSON" in said
    assert "" == model


def test_the_cache_is_listed_without_the_network(tmp_path, monkeypatch):
    """A repository that the catalog does not know stands first, and is chosen from the disk."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    home, commit = tmp_path / "hub" / "models--me--tiny", "0" * 40
    (home / "snapshots" / commit).mkdir(parents=True)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit, encoding="utf-8")
    (home / "snapshots" / commit / "config.json").write_text(json.dumps(TINY_LLAMA), encoding="utf-8")
    (tmp_path / "hub" / "models--me--half").mkdir()

    async def steps(pilot):
        first = listed(pilot)[0]
        await press(pilot, "down", "enter")
        return first, pilot.app.state.model

    assert ("me/tiny", "me/tiny") == drive(tmp_path, steps)
    assert ("me/tiny",) == hub_files.kept()


def test_the_mouse_chooses(tmp_path):
    """A click on a row is as good as Enter."""

    async def steps(pilot):
        await write(pilot, "llama 3.1 8b")
        names = listed(pilot)
        await click(pilot, "#models", (12, 1))
        return names[1], pilot.app.state.model

    second, model = drive(tmp_path, steps)
    assert second == model


def test_undo_takes_the_choice_back(tmp_path):
    """And the facts are those of the model before."""

    async def steps(pilot):
        await write(pilot, "Qwen/Qwen3-32B")
        await press(pilot, "enter")
        await press(pilot, "ctrl+z")
        return pilot.app.state.model, str(pilot.app.screen.query_one("#name", Static).content)

    assert ("Qwen/Qwen3-8B", "✓ Qwen/Qwen3-8B") == drive(tmp_path, steps, model="Qwen/Qwen3-8B")


def test_folders_are_listed_by_their_beginning(tmp_path, folder):
    """Hidden ones only where their dot was typed; nowhere is nothing."""
    (folder.parent / ".git").mkdir()
    (folder.parent / "file").write_text("", encoding="utf-8")

    assert ((str(folder), True),) == hub_files.folders(f"{folder.parent}/")
    assert ((f"{folder.parent}/.git", False),) == hub_files.folders(f"{folder.parent}/.")
    assert () == hub_files.folders(f"{tmp_path}/nowhere/")


@pytest.mark.parametrize(
    ("params", "said"), [(134_515_008, "135M"), (8_190_735_360, "8.2B"), (235_093_634_560, "235B")]
)
def test_sizes_are_those_that_people_say(params, said):
    """As they stand in the models' names."""
    assert said == _size(params)


def test_pictures(tmp_path):
    """A hybrid with experts and siblings, at every size."""

    async def steps(pilot):
        search(pilot, "qwen3 next")
        await testing.settled(pilot)
        await press(pilot, "down")
        await testing.snapshots(pilot, "model")

    drive(tmp_path, steps, model="Qwen/Qwen3-Next-80B-A3B-Instruct")
