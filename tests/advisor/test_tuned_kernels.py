"""Launches that were tuned here reach the commands of plans that our plugin's kernels serve, and no other."""

import json

import pytest

from vllm_advisor import tuned_kernels
from vllm_advisor.candidates import Restrictions
from vllm_advisor.catalog import gpus, models
from vllm_advisor.facts import Facts
from vllm_advisor.hardware import Node
from vllm_advisor.recommend import recommend
from vllm_advisor.testing import HOST, probed
from vllm_advisor.vllm import surface
from vllm_advisor.workload import Workload


def answer(machine="H100", **changes):
    facts = Facts(probed(machine, **changes), models.find("Qwen/Qwen3-8B"), Workload(), surface.load("0.33.0"))
    return recommend(facts, (), Restrictions(quantization="advisor_mxfp4", allow_plugin=True), 3)


def tuned(tmp_path, arch="sm90", op="mxfp4.w4a16", schema=1):
    file = tmp_path / "kernel-configs.json"
    file.write_text(json.dumps({"schema": schema, "entries": [{"op": op, "arch": arch}]}))
    return file


def test_the_command_names_the_file(tmp_path):
    """On the probed machine, with a launch for its architecture, each plan of our plugin sets the variable."""
    file = tuned(tmp_path)
    found = tuned_kernels.handed(answer(), file)

    assert found.plans
    assert {("ADVISOR_KERNEL_CONFIGS", str(file))} == {pair for r in found.plans for pair in r.command.env[-1:]}


def test_other_plans_do_not_name_it(tmp_path):
    """A plan of vLLM's own kernels has nothing to read there."""
    facts = answer().facts
    plain = recommend(facts, (), Restrictions(), 2)
    assert plain == tuned_kernels.handed(plain, tuned(tmp_path))


@pytest.mark.parametrize("given", [{"arch": "sm89"}, {"schema": 2}, {"op": "cpu.mxfp4.linear", "arch": "avx2"}])
def test_a_file_for_something_else_is_left_out(tmp_path, given):
    """Another architecture, another schema, or a processor's tiles."""
    found = answer()
    assert found == tuned_kernels.handed(found, tuned(tmp_path, **given))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": 1, "entries": [3]}'])
def test_a_broken_file_is_left_out(tmp_path, text):
    """Whatever is wrong with it, the recommendation stands."""
    file = tmp_path / "kernel-configs.json"
    file.write_text(text)
    assert not tuned_kernels.holds(file, answer().facts.node)


def test_a_machine_of_the_catalog_has_no_tuned_launches(tmp_path):
    """Only what was probed here can have been tuned here."""
    found = answer(origin="catalog")
    assert found == tuned_kernels.handed(found, tuned(tmp_path))


def test_a_processor_takes_tiles_of_a_processor(tmp_path):
    """Which instruction set is for the kernels to compare."""
    node = Node((gpus.find("cpu"),), host=HOST, origin="probe")

    assert tuned_kernels.holds(tuned(tmp_path, arch="avx2", op="cpu.mxfp4.linear"), node)
    assert not tuned_kernels.holds(tuned(tmp_path), node)
