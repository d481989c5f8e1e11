"""A machine as a file: nothing is lost, nothing private is written, and nothing broken is believed."""

import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_advisor import testing
from vllm_advisor.candidates import Restrictions
from vllm_advisor.catalog import gpus, models
from vllm_advisor.errors import BadInput
from vllm_advisor.facts import Facts
from vllm_advisor.hardware import Gpu, Host, Link, Node, Topology, Unknown, Vendor
from vllm_advisor.probe import detect, recorded
from vllm_advisor.recommend import recommend
from vllm_advisor.vllm import surface
from vllm_advisor.workload import PRESETS


SCENARIOS = Path(__file__).parents[1] / "scenarios"
CATALOG = ("2xrtx3090", "4xl40s", "8xh100", "8xmi300x", "8xmi355x", "cpu", "gb10")
PARTITIONED = ("a100_mig", "mi300x_cpx")  # what the probes make of the answers of the stand-in drivers (tests/data)
NAMES = (*CATALOG, *PARTITIONED)

TEXT = st.text(st.characters(codec="utf-8", categories=("L", "Nd", "Zs", "Po")), max_size=30).filter(
    lambda text: text.isprintable() and not set(text) & set("/\\@")
)
SIZE = st.integers(0, 1 << 50)
RATE = st.floats(0.01, 1e6)
ARCH = st.sampled_from(
    [(Vendor.NVIDIA, "sm90"), (Vendor.NVIDIA, "sm121"), (Vendor.AMD, "gfx90a"), (Vendor.CPU, "cpu-amx")]
)
UNKNOWN = st.builds(Unknown, TEXT)


@st.composite
def devices(draw):
    vendor, arch = draw(ARCH)
    return Gpu(
        name=draw(TEXT.filter(str.strip)),
        vendor=vendor,
        arch=arch,
        memory_bytes=draw(st.integers(1, 1 << 50)),
        bandwidth=draw(st.floats(1, 1e15)),
        tflops_bf16=draw(RATE),
        tflops_fp8=draw(st.none() | RATE),
        tflops_fp4=draw(st.none() | RATE),
        free_bytes=draw(SIZE | UNKNOWN),
        unified_memory=draw(st.booleans()),
        unverified=draw(st.lists(TEXT, max_size=3).map(tuple)),
        source=draw(TEXT),
        other_processes_bytes=draw(SIZE),
        power_cap_watts=draw(st.none() | st.floats(1, 1e5)),
        pci_bus_id=draw(TEXT),
        ecc=draw(st.none() | st.booleans()),
        partition=draw(TEXT),
    )


@st.composite
def nodes(draw):
    found = tuple(draw(st.lists(devices(), min_size=1, max_size=4)))
    pairs = [(a, b) for b in range(len(found)) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    kinds = st.sampled_from(["nvlink", "xgmi", "pcie", "c2c", "host"])
    host = Host(
        draw(TEXT),
        draw(st.integers(1, 1 << 16) | UNKNOWN),
        draw(SIZE | UNKNOWN),
        draw(SIZE | UNKNOWN),
        draw(st.integers(1, 1 << 10) | UNKNOWN),
        draw(st.lists(TEXT, max_size=3).map(tuple)),
    )
    return Node(
        gpus=found,
        topology=Topology(tuple(Link(a, b, draw(kinds), draw(st.floats(0, 1e6))) for a, b in chosen)),
        host=host,
        driver=draw(TEXT),
        runtime=draw(TEXT),
        count=draw(st.integers(1, 10_000)),
        network_gb_s=draw(RATE),
        origin="recorded",
        warnings=draw(st.lists(TEXT, max_size=3).map(tuple)),
    )


@given(nodes())
def test_a_round_trip_loses_nothing(node):
    """Through the text of a file and back: the same machine, Unknown readings with their reasons."""
    assert node == recorded.from_mapping(json.loads(json.dumps(recorded.to_mapping(node))))


def test_saved_and_loaded(tmp_path):
    """The same machine, of origin `recorded`, and only the one file in the folder."""
    node = testing.probed("2xL40S", warnings=("GPU 0: something — with a dash",))
    recorded.save(node, tmp_path / "node.json")

    assert replace(node, origin="recorded") == recorded.load(tmp_path / "node.json")
    assert ["node.json"] == [path.name for path in tmp_path.iterdir()]


def test_the_form_is_documented_by_this_example():
    """Keys are stable: programs read `advisor probe --json`."""
    found = recorded.to_mapping(testing.probed("2xRTX3090"))

    assert "vllm-advisor/node/1" == found["schema"]
    assert [{"kind": "pcie", "gb_s": 32.0, "pairs": "0-1"}] == found["links"]
    assert {"cpu", "cores", "memory_bytes", "shm_bytes", "numa_nodes", "cpu_flags"} == found["host"].keys()
    assert {"unknown": "why"} == recorded.to_mapping(Node((testing.gpu(free_bytes=Unknown("why")),)))["gpus"][0][
        "free_bytes"
    ]


def test_links_of_one_kind_are_one_line():
    """28 pairs of an eight-way board."""
    (run,) = recorded.to_mapping(gpus.node("8xH100"))["links"]

    assert ("nvlink", 28) == (run["kind"], len(run["pairs"].split()))


@pytest.mark.parametrize(
    "private",
    [
        "GPU-5d1c1a3f-7a1c-4f52-9c1a-0f6a2b3c4d5e",
        "MIG-5d1c1a3f-7a1c-4f52-9c1a-0f6a2b3c4d5e",
        "5d1c1a3f-7a1c-4f52-9c1a-0f6a2b3c4d5e",
        "GPU-5d1c1a3f",
        "/home/alice",
        "/Users/alice",
        "/root",
        "alice@desk",
        "buildd@lcy02-amd64-075.example.com",
        "alice.b+c@10.0.0.7",
        "2x@2",
        "josé@büro",
    ],
)
def test_what_points_at_a_person_or_a_device_is_masked(private):
    """UUIDs, whole or cut short, home folders, and who built something where: in every field that holds text."""
    text = f"CUDA_VISIBLE_DEVICES={private}: read from {private}/x"
    texts = dict.fromkeys(("name", "arch", "source", "pci_bus_id", "partition"), text)
    node = Node(
        (replace(testing.gpu(), free_bytes=Unknown(text), unverified=(text,), **texts),),
        host=Host(text, Unknown(text), Unknown(text), Unknown(text), Unknown(text), (text,)),
        driver=text,
        runtime=text,
        origin=text,
        warnings=(text,),
    )
    assert private not in json.dumps(recorded.to_mapping(node), ensure_ascii=False)


@pytest.mark.parametrize(
    "text",
    [
        "MIG 1g.10gb", "GPU-accelerated", "GPU-0 is hot", "0000:c1:00.0", "/rootfs",
        "Xeon(R) CPU E5-2680 v4 @ 2.40GHz", "E5-2680@2.40GHz", "CPU@3 GHz", "@", "a @ b", "x@ y",
    ],
)  # fmt: skip
def test_what_only_looks_private_stays(text):
    """Profiles, bus ids and words are what a reader needs."""
    assert [text] == recorded.to_mapping(Node((testing.gpu(),), warnings=(text,)))["warnings"]


def test_this_machine_is_recorded_without_its_names(tmp_path, monkeypatch):
    """Neither the host's name nor the user's home stands in the file of a real probe."""
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "alices-desk", "6", "1", "x86_64")))
    monkeypatch.setattr(platform, "node", lambda: "alices-desk")
    monkeypatch.setenv("USER", "alice")
    recorded.save(detect.cpu_node(), tmp_path / "node.json")
    text = (tmp_path / "node.json").read_text(encoding="utf-8")

    assert "alice" not in text
    assert str(Path.home()) not in text


def test_lines_break_nowhere():
    """A driver's message of several lines or with control characters is one printable line."""
    found = recorded.to_mapping(Node((testing.gpu(),), warnings=("a\nb\x1b[31m",)))

    assert ["a b [31m"] == found["warnings"]


def changed(path, value):
    """The form of a small machine with one place changed; `path` as `gpus.0.name`."""
    form = json.loads(json.dumps(recorded.to_mapping(testing.probed("2xL40S"))))
    *before, last = [int(step) if step.isdecimal() else step for step in path.split(".")]
    place = form
    for step in before:
        place = place[step]
    place[last] = value
    return form


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("schema", "vllm-advisor/node/2", "form vllm-advisor/node/2, this version reads vllm-advisor/node/1"),
        ("schema", "docker/config", "schema is 'docker/config'"),
        ("schema", 1, "schema is 1"),
        ("gpus", [], "list of 1 to 256"),
        ("gpus", {}, "list of 1 to 256"),
        ("gpus.0", 5, "gpus[0] is 5, not an object"),
        ("gpus.1.name", "", "gpus[1].name is empty"),
        ("gpus.1.name", "two\nlines", "gpus[1].name"),
        ("gpus.1.name", "\ud800", "gpus[1].name"),
        ("gpus.0.vendor", "intel", "not one of nvidia, amd, cpu"),
        ("gpus.0.vendor", ["nvidia"], "not one of nvidia, amd, cpu"),
        ("gpus.0.arch", "gfx942", "no nvidia architecture"),
        ("gpus.0.arch", "sm9²", "no nvidia architecture"),
        ("gpus.0.memory_bytes", 0, "gpus[0].memory_bytes is 0"),
        ("gpus.0.memory_bytes", 80e9, "not a whole number"),
        ("gpus.0.memory_bytes", True, "not a whole number"),
        ("gpus.0.memory_bytes", "80 GB", "'80 GB'"),
        ("gpus.0.memory_bytes", 10**4000, "not a whole number"),
        ("gpus.0.bandwidth", -1, "not a number above 0"),
        ("gpus.0.bandwidth", 1e400, "not a number above 0"),
        ("gpus.0.free_bytes", None, "free_bytes is None"),
        ("gpus.0.free_bytes", {"why": "x"}, "free_bytes.why is no field"),
        ("gpus.0.ecc", "yes", "not true or false"),
        ("gpus.0.memory_byte", 1, "gpus[0].memory_byte is no field"),
        ("host.cores", 0, "host.cores is 0"),
        ("hosts", {}, "hosts is no field"),
        ("links", {}, "not a list"),
        ("links.0.pairs", "0-2", "'0-2', which are no two of 2 devices"),
        ("links.0.pairs", "0-0", "no two of 2 devices"),
        ("links.0.pairs", "0-1 1-0", "twice"),
        ("links.0.kind", "usb", "not one of nvlink"),
        ("count", 0, "count is 0"),
        ("warnings", "text", "not a list"),
    ],
)
def test_what_is_wrong_is_said(path, value, says):
    """One line that names the place and the value; never another exception."""
    with pytest.raises(BadInput) as caught:
        recorded.from_mapping(changed(path, value))

    assert says in caught.value.message
    assert "\n" not in caught.value.message
    assert "advisor probe --save" in caught.value.hint


@pytest.mark.parametrize("key", ["name", "vendor", "arch", "memory_bytes", "bandwidth", "tflops_bf16"])
def test_what_a_device_must_have(key):
    """The six fields without a default."""
    form = changed("count", 1)
    del form["gpus"][0][key]
    with pytest.raises(BadInput, match=rf"gpus\[0\]\.{key} is missing"):
        recorded.from_mapping(form)


def test_everything_else_has_a_default():
    """A file written by hand needs a schema and devices."""
    device = {"name": "x", "vendor": "amd", "arch": "gfx942", "memory_bytes": 1, "bandwidth": 1, "tflops_bf16": 1}
    found = recorded.from_mapping({"schema": "vllm-advisor/node/1", "gpus": [device]})

    assert Node((Gpu("x", Vendor.AMD, "gfx942", 1, 1.0, 1.0),), origin="recorded") == found


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe{}", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", 'no "schema"'),
        (b"null", 'no "schema"'),
        (b'{"gpus": []}', 'no "schema"'),
        (b'{"schema": NaN}', "NaN is no number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b" " * ((1 << 20) + 1), "larger than 1 MiB"),
    ],
)
def test_files_that_are_none(tmp_path, raw, says):
    """Empty, cut off, foreign, deep or huge: one line with the file's name."""
    path = tmp_path / "node.json"
    path.write_bytes(raw)
    with pytest.raises(BadInput) as caught:
        recorded.load(path)

    assert says in caught.value.message
    assert str(path) in caught.value.message


def test_a_byte_order_mark_is_no_harm(tmp_path):
    """Editors of Windows write one."""
    path = tmp_path / "node.json"
    recorded.save(testing.probed("gb10"), path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())

    assert "NVIDIA GB10" == recorded.load(path).gpu.name


@pytest.mark.parametrize("name", ["absent.json", ".", "nul\0"])
def test_what_cannot_be_opened(tmp_path, name):
    """No file, a folder, a name that cannot be."""
    with pytest.raises(BadInput):
        recorded.load(tmp_path / name)


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    """The disk fills while writing: what was there stays, and nothing half is left."""
    path = tmp_path / "node.json"
    recorded.save(testing.probed("gb10"), path)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(BadInput, match="No space left on device"):
        recorded.save(testing.probed("8xH100"), path)

    assert "NVIDIA GB10" == recorded.load(path).gpu.name
    assert ["node.json"] == [path.name for path in tmp_path.iterdir()]


def test_a_save_into_nowhere_says_so(tmp_path):
    """A folder that is not there."""
    with pytest.raises(BadInput, match="cannot be written"):
        recorded.save(testing.probed("gb10"), tmp_path / "no" / "node.json")


def test_a_link_is_followed(tmp_path):
    """The file that it names is replaced, not the link."""
    recorded.save(testing.probed("gb10"), tmp_path / "real.json")
    (tmp_path / "link.json").symlink_to("real.json")
    recorded.save(testing.probed("8xH100"), tmp_path / "link.json")

    assert (tmp_path / "link.json").is_symlink()
    assert 8 == len(recorded.load(tmp_path / "real.json").gpus)


def test_a_device_file_is_written_not_replaced():
    """`--save /dev/null` must not put a file in its place."""
    recorded.save(testing.probed("gb10"), Path("/dev/null"))

    assert not Path("/dev/null").is_file()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8).filter(lambda text: "@" not in text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FORM = recorded.to_mapping(testing.probed("2xL40S"))
PLACES = st.sampled_from(
    [
        *(f"gpus.0.{key}" for key in FORM["gpus"][0]),
        *(f"host.{key}" for key in FORM["host"]),
        *(f"links.0.{key}" for key in FORM["links"][0]),
        *(*FORM, "gpus.1", "links.0", "more"),
    ]
)


@given(PLACES, JSON)
@settings(max_examples=400)
def test_any_value_in_any_place_is_read_or_refused(place, value):
    """Whatever stands in a field: a machine that can be written again, or one line that says no."""
    refusal = ""
    try:
        node = recorded.from_mapping(changed(place, value))
    except BadInput as refused:
        refusal = refused.message
    assert refusal.isprintable()
    assert refusal or node == recorded.from_mapping(recorded.to_mapping(node))
    assert refusal or detect.describe(node)


@given(st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_no_machine(tmp_path, raw):
    """No file of noise raises anything but BadInput."""
    path = tmp_path / "noise"
    path.write_bytes(raw)
    with pytest.raises(BadInput):
        recorded.load(path)


def test_reading_a_file_loads_no_catalog():
    """`recommend --node` pays for json and this module only."""
    code = (
        "import sys; from pathlib import Path; from vllm_advisor.probe import recorded;"
        "recorded.load(Path(sys.argv[1])); print(*sys.modules)"
    )
    env = os.environ | {"PYTHONPATH": str(Path(recorded.__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code, SCENARIOS / "8xh100.json"], capture_output=True, text=True, check=True, env=env
    )
    ours = {name for name in done.stdout.split() if name.startswith("vllm_advisor.")}

    assert {"errors", "hardware", "probe", "probe.recorded", "probe.recorded_form"} == {
        name.removeprefix("vllm_advisor.") for name in ours
    }


def test_every_scenario_is_listed_here():
    """A file that nobody loads would rot."""
    assert sorted(NAMES) == sorted(path.stem for path in SCENARIOS.glob("*.json"))


@pytest.mark.parametrize("name", CATALOG)
def test_a_scenario_is_the_catalogs_machine(name):
    """The devices are those of the catalog today, and the file says that nothing was read."""
    found = recorded.load(SCENARIOS / f"{name}.json")
    catalog = gpus.node({"cpu": "cpu avx512"}.get(name, name))

    assert (catalog.gpus, catalog.topology) == (found.gpus, found.topology)
    assert "nothing of it was read" in found.warnings[0]


@pytest.mark.parametrize(
    ("name", "device", "links"),
    [
        ("a100_mig", ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "3g.40gb", 40192 << 20), set()),
        ("mi300x_cpx", ("AMD Instinct MI300X", "CPX/NPS4", 196588 << 17), {"xgmi"}),
    ],
)
def test_a_partitioned_scenario_has_equal_parts(name, device, links):
    """Two slices of an A100 that reach nobody, eight parts of an MI300X that do; the file names the stand-in."""
    found = recorded.load(SCENARIOS / f"{name}.json")

    assert {device} == {(gpu.name, gpu.partition, gpu.memory_bytes) for gpu in found.gpus}
    assert (2 if name == "a100_mig" else 8) == len(found.gpus)
    assert links == {link.kind for link in found.topology.links}
    assert "a stand-in driver's, not a real machine's" in found.warnings[0]


@pytest.mark.parametrize("vllm", ["0.24.0", "0.33.0"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("model", ["openai/gpt-oss-120b", "Qwen/Qwen3-8B"])
def test_a_scenario_has_an_answer(name, model, vllm):
    """A plan for the machine's own devices, or a no with reasons."""
    node = recorded.load(SCENARIOS / f"{name}.json")
    facts = Facts(node, models.find(model), PRESETS["chat"], surface.load(vllm))
    found = recommend(facts, models.siblings(facts.model), Restrictions(), 3)

    assert found.plans or all(miss.findings for miss in found.rejected)
    assert all(ranked.budget.total == node.gpu.memory_bytes for ranked in found.plans)
