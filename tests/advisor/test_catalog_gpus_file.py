"""The line reader of gpus.toml is held equal to a TOML parser, and the catalog to its own rules."""

import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from vllm_advisor.catalog import gpus, gpus_file, gpus_table


TABLES = tomllib.loads(gpus_file.PATH.read_text(encoding="utf-8"))
SOURCES = TABLES.pop("sources")
WEAK = ("D", "E", "G")
ADVISOR = Path(gpus_file.PATH).parents[2]
ROOT = ADVISOR.parent

# Median of nine fresh processes, each: find of a driver name and node of eight devices.
TIMED = """
import time
from vllm_advisor.catalog import gpus
start = time.perf_counter()
gpus.find("NVIDIA H100 80GB HBM3"), gpus.node("8xMI300X")
print((time.perf_counter() - start) * 1000)
"""


def sourced_lines():
    return [
        (table, key, value)
        for table, fields in TABLES.items()
        for key, value in fields.items()
        if isinstance(value, list) and key not in gpus_file.NAMES
    ]


def test_the_line_reader_reads_what_tomllib_reads():
    """Every table, in order, with every key, value and type."""
    read = [gpus_file.entry(i) for i in range(len(gpus_file.blocks()))]
    assert list(TABLES.values()) == read
    assert [[type(v) for v in t.values()] for t in TABLES.values()] == [[type(v) for v in t.values()] for t in read]


def test_blocks_are_the_tables_of_the_file():
    """No table is lost or split by the reader."""
    assert list(TABLES) == [block.partition("]")[0] for block in gpus_file.blocks()]


def test_the_catalog_is_large_enough():
    """At least 48 GPUs of two makers, processors not counted."""
    vendors = [table["vendor"] for table in TABLES.values()]
    assert 48 <= vendors.count("nvidia") + vendors.count("amd")
    assert {"nvidia", "amd", "cpu"} == set(vendors)


def test_every_figure_names_a_known_source():
    """`[value, source]` or `[value, source, "unverified"]`, and the source is explained at the end of the file."""
    for table, key, value in sourced_lines():
        assert len(value) in (2, 3), (table, key)
        assert value[2:] in ([], ["unverified"]), (table, key)
        for part in value[1].split("+"):
            known = part in SOURCES or part.startswith("vllm#")
            assert known, (table, key, part)


def test_weak_sources_are_always_marked_unverified():
    """General knowledge and estimates never pass as facts."""
    unmarked = [(t, k) for t, k, value in sourced_lines() if value[1].split("+")[0] in WEAK and len(value) < 3]
    assert [] == unmarked


def test_every_number_is_sourced():
    """Only the size limit of a machine stands without a source, and no table lacks a main figure."""
    needed = {"arch", "memory_mib", "bandwidth_gb_s", "tflops_bf16"}
    for table, fields in TABLES.items():
        bare = {key for key, value in fields.items() if isinstance(value, int | float) and not isinstance(value, bool)}
        assert {"max_per_node"} == bare, table
        assert needed <= set(fields), table


def test_total_memory_is_below_what_the_management_library_reports():
    """CUDA's total is NVML's less what the driver keeps; ECC that can be switched explains the one large gap."""
    gaps = {
        table: fields["nvml_mib"][0] - fields["memory_mib"][0]
        for table, fields in TABLES.items()
        if "nvml_mib" in fields
    }
    assert 3521 == gaps.pop("rtx-a6000")
    assert 0 < min(gaps.values())
    assert max(gaps.values()) < 8000


@pytest.mark.parametrize("kind", ["name", "spellings", "driver", "machines"])
def test_every_written_name_leads_to_its_own_table(kind):
    """One name in two tables is ambiguous on purpose; those are all listed here."""
    shared = {"RTX 6000", *(d for d in TABLES["rx-7900-xtx"]["driver"] if d.startswith("Navi"))}
    for index, fields in enumerate(TABLES.values()):
        written = [fields["name"]] if kind == "name" else fields.get(kind, [])
        for name in {text.partition("=")[0] for text in written} - shared:
            assert [index] == gpus_file.matching(name), name


def test_names_and_devices_are_in_catalog_order():
    """`names` and `all_gpus` cover every table."""
    assert tuple(table["name"] for table in TABLES.values()) == gpus.names()
    assert gpus.names() == tuple(gpu.name for gpu in gpus.all_gpus())


def test_the_page_of_the_documentation_is_generated():
    """docs/gpus.md is what the catalog says."""
    assert gpus_table.page() == (ROOT / "docs" / "gpus.md").read_text(encoding="utf-8")


def test_the_table_marks_what_is_not_verified():
    """A row as a reader sees it: RTX 3090 has measured memory, and a datasheet that nobody read again."""
    row = next(line for line in gpus_table.markdown_table().splitlines() if "RTX 3090 |" in line)
    assert "| NVIDIA RTX 3090 | sm86 | 23.58 | ~936 | ~71 | - | - | - | ~32 | 16 | C, D+T, vllm#10517, P, D |" == row


def test_a_lookup_is_fast_in_a_fresh_process():
    """`find` and `node` together stay within 2 ms, the file read included (0.8 ms on two slow cores)."""
    runs = [
        float(
            subprocess.run(
                [sys.executable, "-c", TIMED], env={"PYTHONPATH": str(ADVISOR)}, capture_output=True, check=True
            ).stdout
        )
        for _ in range(5)
    ]
    assert min(runs) <= 2.0, statistics.median(runs)


def test_a_lookup_loads_no_parser():
    """tomllib and difflib stay out of the way of a name that is found."""
    shown = "print('tomllib' in sys.modules, 'difflib' in sys.modules)"
    code = f"import sys; from vllm_advisor.catalog import gpus; gpus.node('8xH100'); {shown}"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(ADVISOR)}, capture_output=True, check=True, text=True
    )
    assert "False False" == done.stdout.strip()
