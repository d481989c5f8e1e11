"""The knobs of a server: what the version and the device have, each with its neighbours, none that a rule vetoes."""

import json
from dataclasses import replace

import pytest

from vllm_advisor.catalog import hub
from vllm_advisor.check import read, report
from vllm_advisor.plan import Plan
from vllm_advisor.recommend import recommend
from vllm_advisor.vllm import surface
from vllm_advisor.workload import Objective
from vllm_tuner import spaces, workloads
from vllm_tuner.knobs import DTYPE, FP32
from vllm_tuner.spaces import Knob
from vllm_tuner.testing import facts, small_space
from vllm_tuner.trial import Candidate, known, study_name, worth


@pytest.fixture
def processor(tmp_path):
    """On a CPU."""
    return facts(tmp_path / "tiny")


@pytest.fixture
def node(tmp_path):
    """On eight H100."""
    return facts(tmp_path / "tiny", machine="8xH100")


def names(space):
    return {knob.name for knob in space.knobs}


def point(space, **values):
    """The first recommended plan with some knobs changed."""
    start = dict(zip((k.name for k in space.knobs), space.starts()[0], strict=True))
    return tuple((start | values)[knob.name] for knob in space.knobs)


def test_little_effort_turns_batch_limits_alone(processor, node):
    """Plans and two numbers, and on a processor whether vLLM compiles."""
    limits = {"plan", "max_num_seqs", "max_num_batched_tokens"}

    assert limits == names(small_space(node))
    assert limits | {"enforce_eager"} == names(small_space(processor))


def test_a_search_opens_with_the_plan_compiled_as_vllm_would(processor):
    """On a processor the recommended plan is compiled; an eager one is a step away, and both are tried from there."""
    space = small_space(processor)
    first = space.openings()[0]
    eager = space._start(1, replace(space.plans[0][1].plan, enforce_eager=True))

    assert (space.starts()[0], False) == (first, first[-1])
    assert (*first[:-1], True) in space.neighbours(first)
    asked = space._replace(
        plans=((1, space.plans[0][1]._replace(plan=replace(space.plans[0][1].plan, enforce_eager=True))),)
    )
    assert (eager, first) == asked.openings()[:2]


def test_a_device_has_its_own_knobs(processor, node):
    """Threads and compilation on a CPU, layout, KV dtype and graphs on a GPU, schedulers on both."""
    both = {"plan", "max_num_seqs", "max_num_batched_tokens", "async_scheduling", "prefix_caching"}

    device = {"performance_mode", "graph_size", "layout", "kv_cache_dtype"}

    assert both | {"enforce_eager", "threads"} == names(small_space(processor, breadth=2))
    assert both | device == names(small_space(node, breadth=2))


@pytest.mark.parametrize(
    ("flags", "offered"),
    [(("avx2",), True), (("avx512f", "avx512_bf16"), False), (("asimd", "bf16"), False), ((), False)],
)
def test_a_processor_without_bf16_units_is_asked_for_fp32(processor, flags, offered):
    """It is where the search begins there; a processor with units, or of which nothing is known, is left alone."""
    host = replace(processor.node.host, cpu_flags=flags)
    space = small_space(processor._replace(node=replace(processor.node, host=host)))
    first = space.candidate(space.starts()[0])
    assert offered == ("dtype" in names(space)) == ((DTYPE, FP32) in first.flags)
    assert offered == (space.command(first).argv[-2:] == (DTYPE, FP32))


def test_fp32_takes_twice_the_memory(processor):
    """The room that a pair of servers needs counts it; a quantized checkpoint is left as it is."""
    host = replace(processor.node.host, cpu_flags=("avx2",))
    space = small_space(processor._replace(node=replace(processor.node, host=host)))
    single, plain = (space.candidate(point(space, dtype=value)) for value in (FP32, None))
    assert space.model(single).weight_bytes == 2 * space.model(plain).weight_bytes
    assert "" == space.objection(single)
    online = next(number for number, ranked in space.plans if ranked.plan.quantization)
    assert () == space.candidate(point(space, plan=online, dtype=FP32)).flags
    assert "dtype" not in names(spaces.space(space.facts, [space.plans[online - 1]], 1))


def gone_names():
    return "async_scheduling", "performance_mode", "graph_size"


def test_a_knob_that_the_version_lacks_is_not_turned(node):
    """A surface without the flags has a space without the knobs."""
    gone = ("--async-scheduling", "--performance-mode", "--max-cudagraph-capture-size")
    flags = {name: flag for name, flag in node.vllm.flags.items() if name not in gone}
    old = node._replace(vllm=node.vllm._replace(flags=flags))

    assert {*gone_names()}.isdisjoint(names(small_space(old, breadth=2)))


def test_a_shared_prefix_keeps_its_cache(processor):
    """Without the cache a shared prefix would be computed again and again: that is not worth a trial."""
    shared = processor._replace(workload=replace(processor.workload, shared_prefix_tokens=16))

    assert "prefix_caching" not in names(small_space(shared, breadth=2))


def test_batch_limits_hold_the_plan_s_own_and_vllm_s_default(processor):
    """8 requests at once: 4, 8, 16 and the 128 of a CPU; tokens only as far as the load fills a step."""
    _, seqs, tokens, _ = small_space(processor).knobs

    assert (4, 8, 16, 128) == seqs.values
    assert (512, 2048) == tokens.values
    assert (True, 8, 2048) == (seqs.ordered, seqs.default, tokens.default)


def test_neighbours_follow_the_order_where_there_is_one():
    """Next to it on both sides, or every other value."""
    ordered, free = Knob("n", (1, 2, 4, 8), 1, ordered=True), Knob("mode", (None, "a", "b"), None)

    assert ((2,), (1, 4), (4,)) == tuple(ordered.neighbours(value) for value in (1, 2, 8))
    assert ("a", "b") == free.neighbours(None)


def test_the_points_next_to_one_differ_in_one_knob(processor):
    """One step of one knob."""
    space = small_space(processor, breadth=2)
    here = space.starts()[0]

    assert {1} == {sum(a != b for a, b in zip(here, other, strict=True)) for other in space.neighbours(here)}


def test_a_grid_begins_with_what_was_recommended(processor):
    """Then what differs from it in one knob, and so on; each point once."""
    space = small_space(processor)
    points = list(space.points())

    assert set(space.openings()) == set(points[: len(space.openings())])
    assert space.size == len(points) == len(set(points))


def test_a_start_is_the_recommended_command(processor):
    """A search that changes nothing launches what `advisor recommend` prints."""
    space = small_space(processor)
    for start, (_, ranked) in zip(space.starts(), space.plans, strict=True):
        assert ranked.command.argv == space.command(space.candidate(start)).argv


def test_knobs_become_flags_and_variables_of_vllm(processor):
    """Fields of the plan, flags that it has no field for, and the binding of threads."""
    space = small_space(processor, breadth=2)
    chosen = space.candidate(
        point(space, max_num_seqs=4, async_scheduling=False, prefix_caching=False, threads="nobind")
    )
    command = space.command(chosen)

    assert (("--no-async-scheduling", True), ("--no-enable-prefix-caching", True)) == chosen.flags
    assert "--max-num-seqs 4" in " ".join(command.argv)
    assert ("--no-async-scheduling", "--no-enable-prefix-caching") == command.argv[-2:]
    assert (("VLLM_CPU_OMP_THREADS_BIND", "nobind"),) == command.env


def test_every_flag_of_every_point_is_one_of_the_version(node):
    """No generated command names what the version does not take."""
    space = small_space(node, breadth=2)
    for flags in {space.candidate(p).flags for p in space.points()}:
        assert all(space.facts.vllm.has_flag(name) for name, _ in flags)


@pytest.mark.parametrize("version", ["0.24.0", "0.28.0", "0.33.0"])
def test_every_neighbour_of_the_start_has_a_command(tmp_path, version):
    """In old and new versions."""
    space = small_space(facts(tmp_path / "tiny", machine="8xH100", version=version), breadth=2)
    here = space.starts()[0]
    legal = [c for p in space.neighbours(here) if not space.objection(c := space.candidate(p))]

    assert legal
    assert all(("vllm", "serve") == space.command(candidate).argv[:2] for candidate in legal)


def test_another_layout_lets_as_many_run_and_gets_its_own_variables(node):
    """Eight engines of 4 sequences become one of 32; the plan's own layout under its name is the plan itself."""
    space = small_space(node, breadth=2)
    first = space.plans[0][1].plan
    layouts = next(knob.values for knob in space.knobs if knob.name == "layout")
    other = next(name for name in layouts if name and "TP4" in name)
    changed = space.candidate(point(space, layout=other, max_num_seqs=4)).plan

    assert first.layout in layouts
    assert space.candidate(point(space, layout=first.layout)) == space.candidate(space.starts()[0])
    assert (4, first.data_parallel_size * 4) == (
        changed.tensor_parallel_size,
        changed.max_num_seqs * changed.data_parallel_size,
    )
    assert first.world_size == changed.world_size


def test_a_kv_dtype_is_a_knob_of_its_own(node):
    """FP8 around a plan that has 16 bits, in the command; nothing on a processor, which has no such cache."""
    space = small_space(node, breadth=2)
    command = space.command(space.candidate(point(space, kv_cache_dtype="fp8")))

    assert ("--kv-cache-dtype", "fp8") == command.argv[command.argv.index("--kv-cache-dtype") :][:2]


def test_drafts_are_judged_on_real_text_alone(node):
    """After random tokens a model loops, and n-grams would win; with texts they are tried, and the user's drafts."""
    plans = list(enumerate(recommend(node, (), None, 1).plans, 1))

    assert "speculative" not in names(spaces.space(node, plans, 3))
    found = spaces.space(node, plans, 2, texts=True, drafts=("org/eagle",)).knobs[-1]
    configs = [json.loads(value) for value in found.values if value]
    assert ("speculative", None) == (found.name, found.values[0])
    assert [("ngram", None), (None, "org/eagle")] == [(c.get("method"), c.get("model")) for c in configs]


def test_the_model_s_own_draft_layers_are_a_draft(node):
    """MTP proposes multiples of the layers that the checkpoint has."""
    model = replace(node.model, mtp_layers=2)
    plans = [(1, recommend(node, (), None, 1).plans[0]._replace(model=model))]
    found = spaces.space(node._replace(model=model), plans, 2, texts=True).knobs[-1]

    assert [2, 4] == [
        c["num_speculative_tokens"] for v in found.values if v and (c := json.loads(v))["method"] == "mtp"
    ]


def test_more_effort_tries_more_of_everything(node):
    """Each breadth holds the one before."""
    plans = list(enumerate(recommend(node, (), None, 3).plans, 1))
    two, three = (
        {knob.name: set(knob.values) for knob in spaces.space(node, plans, breadth, texts=True).knobs}
        for breadth in (2, 3)
    )

    assert two.keys() == three.keys()
    assert all(two[name] <= three[name] for name in two)
    assert {"layout", "graph_size", "speculative"} == {name for name in two if two[name] < three[name]}


MACHINES = ("", "8xH100", "4xMI300X", "2xL40S")
CHECKED = 40  # points of each space, the openings and a seeded choice


def random_points(space, number):
    draw = workloads.seeded(1)
    return {tuple(draw.choice(knob.values) for knob in space.knobs) for _ in range(number)}


def assert_accepted(found):
    """Every command that is tried, and vLLM's defaults: no error of our own checker."""
    plans = list(enumerate(recommend(found, (), None, 2).plans, 1))
    space = spaces.space(found, plans, 3, texts=True, drafts=("org/eagle",))
    every = [space.candidate(p) for p in (*space.openings(), *random_points(space, CHECKED))]
    tried = [candidate for candidate in every if not space.objection(candidate)]

    for candidate in (spaces.defaults(found, plans), *tried):
        command = space.command(candidate)
        words = [*(f"{name}={value}" for name, value in command.env), *command.argv]
        judged = report.judge(read.command_line(words), found.vllm, found.node, space.model(candidate), None)
        assert [] == [f"{f.id} {f.text}" for f in judged.findings if f.level == "error"], command.argv
    assert len(tried) > CHECKED // 2


@pytest.mark.parametrize("machine", MACHINES, ids=lambda name: name or "CPU")
@pytest.mark.parametrize("version", surface.versions())
def test_our_own_checker_accepts_every_command_that_is_tried(tmp_path, machine, version):
    """Of every version, on processors and GPUs of both vendors, with drafts."""
    assert_accepted(facts(tmp_path / "tiny", machine=machine, version=version))


@pytest.mark.parametrize("version", ["0.24.0", "0.33.0"])
@pytest.mark.parametrize("name", ["Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-R1"])
def test_and_of_models_with_experts_and_draft_layers(tmp_path, name, version):
    """Expert parallel layouts, MLA and MTP among them."""
    found = facts(tmp_path / "tiny", machine="4xMI300X", version=version)
    assert_accepted(found._replace(model=hub.resolve(name, offline=True)))


def test_what_the_checker_calls_an_error_is_not_tried(processor):
    """A flag that the version lacks, which no rule looks at."""
    space = small_space(processor)
    odd = space.candidate(space.starts()[0])._replace(flags=(("--no-such-flag", True),))

    assert "--no-such-flag" in space.objection(odd)


def test_a_point_that_vllm_or_a_rule_refuses_says_why(processor):
    """More sequences than tokens, and a plan on more devices than there are."""
    space = small_space(processor)
    start = space.candidate(space.starts()[0])
    crowded = start._replace(plan=replace(start.plan, max_num_batched_tokens=4))
    wide = start._replace(plan=replace(start.plan, tensor_parallel_size=3))

    assert "" == space.objection(start)
    assert "4 tokens a step for 8 sequences" == space.objection(crowded)
    assert space.objection(wide)


def test_vllm_s_defaults_are_written_with_no_knob(processor, node):
    """Only the context that is asked for, and on a CPU the room that it cannot do without."""
    for found, flags in ((processor, {"--max-model-len", "--kv-cache-memory-bytes"}), (node, {"--max-model-len"})):
        space = small_space(found)
        command = space.command(spaces.defaults(found, space.plans))
        assert flags == {word for word in command.argv if word.startswith("--")}


def test_a_label_tells_candidates_apart():
    """Layout, limits, formats, what else was turned."""
    plan = Plan("org/m", "fp8", "fp8", tensor_parallel_size=2, max_num_seqs=64, max_num_batched_tokens=4096)

    assert "TP2, 64 seqs, 4096 tokens, fp8, KV fp8, --no-async-scheduling" == spaces.label(
        Candidate(plan, (("--no-async-scheduling", True),))
    )


def test_beside_a_fixed_cache_the_share_of_memory_is_no_difference():
    """VLLM is not told it then; on a GPU without one it is."""
    fixed, free = Plan("m", kv_cache_memory_bytes=1 << 30), Plan("m")

    assert Candidate(fixed).key == Candidate(replace(fixed, gpu_memory_utilization=0.5)).key
    assert Candidate(free).key != Candidate(replace(free, gpu_memory_utilization=0.5)).key


def test_a_speculation_is_named_in_short_and_noted_as_typed():
    """In tables its method; in a profile's note a shell's own quoting."""
    flags = (("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}'),)

    assert spaces.label(Candidate(Plan("m"), flags)).endswith("speculative ngram ×3")
    assert """--speculative-config '{"method": "ngram", "num_speculative_tokens": 3}'""" == spaces.flags_note(flags)


def test_equal_questions_share_a_study_whatever_the_objective(processor):
    """All figures are kept, so another objective needs no other trials; another load does."""
    from vllm_advisor import fingerprint

    strict, load = fingerprint.of(processor), processor.workload
    name = study_name("org/m", strict, load, "synthetic")

    assert name.startswith("serve m ")
    assert name == study_name("org/m", strict, replace(load, objective=Objective.LATENCY), "synthetic")
    assert name != study_name("org/m", strict, replace(load, concurrency=9), "synthetic")
    assert name != study_name("org/m", strict, load, "sharegpt.json")


@pytest.mark.parametrize(
    ("objective", "value"),
    [(Objective.THROUGHPUT, 400.0), (Objective.COST, 100.0), (Objective.LATENCY, 25.0), (Objective.BALANCED, 100.0)],
)
def test_what_counts_as_better_follows_the_objective(processor, objective, value):
    """400 tok/s on 4 devices, 4 requests a second of 100 tokens that take 4 s: 25 tokens a second for one user."""
    load = replace(processor.workload, objective=objective)

    assert value == worth(load, {"output_tok_s": 400.0, "request_s": 4.0, "e2el_ms": 4000.0}, 4)


def test_limits_make_it_goodput(processor):
    """Half of the requests kept the limits: half the worth."""
    limits = replace(processor.workload.sla, ttft_ms=100.0)
    load = replace(processor.workload, sla=limits)
    figures = {"output_tok_s": 400.0, "request_s": 4.0, "goodput_s": 2.0, "e2el_ms": 4000.0}

    assert 200.0 == worth(load, figures, 1)


def test_trials_of_something_else_are_no_answers():
    """A kernel's trial has no plan."""
    from vllm_advisor.profile import Trial, TrialState

    assert {} == known([Trial("s", "kernel", None, (("BLOCK", 64),), state=TrialState.COMPLETE)])


def test_the_oldest_and_the_newest_version_are_there():
    """What the tests above stand on."""
    assert {"0.24.0", "0.33.0"} <= set(surface.versions())
