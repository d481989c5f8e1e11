"""Every command that can be generated is one that its vLLM takes: 150 models × 12 set-ups × 10 versions.

The plans are the candidates of each version on each machine, the commands those that a user would get, and the judge is
the one of `advisor check`: nothing of its findings about flags, values and variables may be an error.
"""

import itertools

import pytest

from vllm_advisor.candidates import Restrictions, candidates
from vllm_advisor.catalog import gpus, models
from vllm_advisor.check import environment, flags, read, values
from vllm_advisor.check.finding import ERROR, NOTE
from vllm_advisor.check.parse import parse
from vllm_advisor.facts import Facts
from vllm_advisor.vllm import surface
from vllm_advisor.vllm.command import build
from vllm_advisor.workload import PRESETS


SETUPS = (
    "8xH100", "H100", "8xH200", "8xB200", "A100", "4xL40S", "L4", "RTX PRO 6000", "8xMI300X", "8xMI355X", "2x8xH100",
    "RTX 4090",
)  # fmt: skip
NODES = {name: gpus.node(name) for name in SETUPS}
# Every second or third of the catalog, so that all families are among them, and the checkpoints in rare formats.
NAMES = models.names()
CHOSEN = [spec for name in NAMES[:: len(NAMES) // 160] if (spec := models.find(name))][:150]


def test_the_grid_is_as_large_as_it_says():
    """150 models, 12 machines, 10 versions."""
    assert (150, 12, 10) == (len(CHOSEN), len(set(NODES)), len(surface.versions()))


def spread(facts):
    """Three of the candidates, far apart: the smallest, one in the middle, the last."""
    found = list(candidates(facts, (facts.model,), Restrictions()))
    return {id(found[i]): found[i] for i in (0, len(found) // 2, len(found) - 1)}.values() if found else ()


def faults(facts):
    """What the checker says of the commands of one cell, at error level, and every variable that is not known."""
    for plan, model in spread(facts):
        command = build(plan, model, facts.node, facts.vllm, facts.workload)
        reading = parse(read.command_line([*(f"{n}={v}" for n, v in command.env), *command.argv]), facts.vllm)
        found = (*flags.findings(reading, facts.vllm), *values.findings(reading, facts.vllm))
        variables = (f for f in environment.findings(reading, facts.vllm) if f.level != NOTE)
        yield from (f"{plan.layout}: {f.id} {f.text}" for f in found if f.level == ERROR)
        yield from (f"{plan.layout}: {f.id} {f.text}" for f in variables)


@pytest.mark.parametrize(("version", "setup"), [*itertools.product(surface.versions(), SETUPS)])
def test_every_flag_choice_and_variable_is_the_versions_own(version, setup):
    """No model of the grid gets a command that this version would refuse or warn about."""
    taken = surface.load(version)
    said = {
        model.name: found
        for model in CHOSEN
        if (found := list(faults(Facts(NODES[setup], model, PRESETS["chat"], taken))))
    }

    assert {} == said
