"""What a recommendation becomes when something was measured: truths first, priors correct, every no has a reason."""

from dataclasses import replace

import pytest

from vllm_advisor import adoption, fingerprint, profiles
from vllm_advisor.adoption import Match
from vllm_advisor.candidates import Restrictions
from vllm_advisor.catalog import models
from vllm_advisor.facts import Facts
from vllm_advisor.fingerprint import Checkpoint, Installed
from vllm_advisor.profile import Measurement, Origin, Profile, Provenance, QualityResult
from vllm_advisor.recommend import recommend
from vllm_advisor.store.profile_store import ProfileStore
from vllm_advisor.testing import probed
from vllm_advisor.units import Interval
from vllm_advisor.vllm import surface
from vllm_advisor.workload import PRESETS, Sla


MODEL = models.find("Qwen/Qwen3-8B")
SIBLINGS = models.siblings(MODEL)
FACTS = Facts(probed("2xL40S"), MODEL, PRESETS["chat"], surface.load("0.33.0"))
FOUND = recommend(FACTS, SIBLINGS, None, 50)
SOFTWARE = Installed("0.33.0", "2.13.0", "3.8.0", "0.1.0")
FILES = Checkpoint("a" * 40, "sha256:" + "b" * 64)


def exact(value):
    return Interval(value, value, value)


def profile(plan, output=2000.0, load=PRESETS["chat"], **changes):
    model = next(model for model in (MODEL, *SIBLINGS) if model.name == plan.checkpoint)
    figures = (("output_tok_s", exact(output)), ("tpot_ms", exact(15.0)), ("ttft_ms", exact(200.0)))
    print_ = fingerprint.fingerprint(FACTS.node, model, "0.33.0", SOFTWARE, FILES)
    measured = Measurement(figures, load, 5, 60.0, "vllm bench serve", 1_767_225_600.0)
    made = Profile(print_, plan, measured, provenance=Provenance(Origin.MEASURED), model=MODEL.name, id="4f1c00000000")
    return made._replace(**changes)


# A plan that is not the best by estimate, with limits that no candidate has.
WORST = FOUND.plans[-1].plan
TUNED = replace(FOUND.plans[1].plan, max_num_seqs=40, max_num_batched_tokens=6144)
CHECKPOINTS = (MODEL, *SIBLINGS)


def applied(*truths, priors=(), facts=FACTS, restrictions=None, top=5):
    found = FOUND._replace(facts=facts)
    return adoption.apply(found, Match(truths, tuple(priors), CHECKPOINTS), restrictions, top)


@pytest.mark.parametrize("plan", [WORST, TUNED], ids=["worst", "tuned"])
def test_the_measured_plan_comes_first_and_says_so(plan):
    """Whatever the estimates say: its own limits, its command, the measurement as the first reason."""
    outcome = applied(profile(plan))
    best = outcome.answer.plans[0]
    assert (plan, "4f1c00000000") == (best.plan, outcome.measured.id)
    assert ("PRF-01", "profile 4f1c00000000") == (best.findings[0].rule, best.findings[0].source)
    said = "measured here on 2026-01-01: 2,000 tok/s, 15.0 ms a token, 200 ms to the first (5 runs, vllm bench serve)"
    assert said == best.findings[0].message
    assert "" == best.trade
    assert all(plan.trade for plan in outcome.answer.plans[1:])


def test_the_command_is_the_measured_one():
    """What was tuned is what is started."""
    argv = applied(profile(TUNED)).answer.plans[0].command.argv
    assert "6144" == argv[argv.index("--max-num-batched-tokens") + 1]


def test_flags_beside_the_plan_are_in_its_command():
    """What a plan has no field for was part of the measurement."""
    flags = (("--async-scheduling", True), ("--stream-interval", 8))
    command = applied(profile(TUNED, flags=flags)).answer.plans[0].command
    assert ("--async-scheduling", "--stream-interval", "8") == command.argv[-3:]
    assert "as it was measured" == dict(command.notes)["--stream-interval"]


def test_an_estimate_is_never_the_measurement():
    """The shown estimate is moved towards what was measured, keeps an interval and says what moved it."""
    before = next(p.estimate for p in FOUND.plans if p.plan == WORST)
    after = applied(profile(WORST, before.output_tok_s.mid / 2)).answer.plans[0].estimate
    assert before.output_tok_s.mid / 2 < after.output_tok_s.mid < before.output_tok_s.mid * 0.6
    assert after.output_tok_s.low < after.output_tok_s.high
    assert "corrected by 1 measurement on this machine" == after.notes[-1]


def test_of_two_measured_plans_the_faster_is_first():
    """By what was measured, whatever is predicted."""
    slow, fast = profile(FOUND.plans[0].plan, 100.0), profile(WORST, 9000.0, id="fast")
    assert "fast" == applied(slow, fast).measured.id


BF16 = next(p.plan for p in FOUND.plans if p.plan.checkpoint == MODEL.name)
OURS = replace(BF16, quantization="advisor_mxfp4")


def test_the_plugin_alone_is_not_put_first():
    """Nobody allowed it, and nothing of vLLM's own was measured beside it."""
    outcome = applied(profile(OURS, 9000.0))
    assert None is outcome.measured
    assert any("was not measured against a kernel of vLLM's" in text for text in outcome.remarks)


def test_the_plugin_goes_first_where_it_beat_vllms_own():
    """Faster than a measured plan without it, which is named beside it."""
    outcome = applied(profile(WORST, 2000.0, id="own"), profile(OURS, 9000.0, id="ours"))
    assert "ours" == outcome.measured.id
    assert any("our plugin advisor_mxfp4" in text and text.endswith("own") for text in outcome.remarks)


def test_the_plugin_goes_first_where_it_is_allowed():
    """Asked for, its measurement is one as any other."""
    assert "ours" == applied(profile(OURS, 9000.0, id="ours"), restrictions=Restrictions(allow_plugin=True)).measured.id


def test_a_plan_whose_accuracy_was_not_checked_says_so():
    """FP8 in place of BF16 without the gate: first, and unvalidated. Checked, or the same computation: nothing said."""
    fp8 = next(p.plan for p in FOUND.plans if p.plan.kv_cache_dtype == "fp8")
    checked = QualityResult("KL divergence", Interval(0.0, 0.1, 0.2), 0.3, passed=True)

    assert any("4f1c00000000 is unvalidated" in remark for remark in applied(profile(fp8)).remarks)
    assert () == applied(profile(fp8, quality=(checked,))).remarks
    assert (
        () == applied(profile(replace(BF16, checkpoint=MODEL.name, quantization=None, kv_cache_dtype="auto"))).remarks
    )


def test_a_prior_corrects_and_is_never_first_by_right():
    """The order stays by corrected estimate, no plan is called measured, and the reason is told."""
    base = next(p for p in FOUND.plans if p.plan == WORST)
    outcome = applied(priors=[(profile(WORST, base.estimate.output_tok_s.mid / 2), "driver is 590, it was 580")])
    assert None is outcome.measured
    assert ("profile 4f1c00000000 is a prior only: driver is 590, it was 580",) == outcome.remarks
    after = outcome.answer.plans[0].estimate
    assert "corrected by 1 measurement on machines like this one" == after.notes[-1]
    assert after.output_tok_s.mid < FOUND.plans[0].estimate.output_tok_s.mid


def test_a_prior_moves_its_own_plan_less_than_a_truth_does():
    """Another driver may have moved the configuration's own part."""
    base = FOUND.plans[0]
    half = profile(base.plan, base.estimate.output_tok_s.mid / 2)
    truth = applied(half).answer.plans[0].estimate.output_tok_s.mid
    moved = {p.plan: p.estimate.output_tok_s.mid for p in applied(priors=[(half, "x")], top=50).answer.plans}
    assert truth < moved[base.plan] < base.estimate.output_tok_s.mid


@pytest.mark.parametrize(
    ("changes", "facts", "restrictions", "says"),
    [
        ({"load": PRESETS["rag"]}, FACTS, None, "another load"),
        ({"quality": (QualityResult("kl", exact(1.0), 0.1, False),)}, FACTS, None, "check of accuracy"),
        ({}, FACTS, Restrictions(tensor_parallel_size=7), "what you fixed"),
        ({}, FACTS, Restrictions(offline_llm=True), "what you fixed"),
        ({}, FACTS._replace(workload=replace(PRESETS["chat"], context=10**7)), None, "tokens at most"),
        ({}, FACTS._replace(workload=replace(PRESETS["chat"], sla=Sla(tpot_ms=5.0))), None, "at most 5.00 ms a token"),
    ],
    ids=["load", "accuracy", "fixed", "python", "context", "sla"],
)
def test_a_measured_plan_that_is_no_answer_is_not_first(changes, facts, restrictions, says):
    """And it is said why, for every cause."""
    outcome = applied(profile(TUNED, **changes), facts=facts, restrictions=restrictions)
    assert None is outcome.measured
    assert says in outcome.remarks[0]


def test_nothing_measured_changes_nothing():
    """No profile: the same plans, in the same order, with the same estimates."""
    outcome = applied(top=5)
    assert [p.plan for p in FOUND.plans[:5]] == [p.plan for p in outcome.answer.plans]
    assert [p.estimate for p in FOUND.plans[:5]] == [p.estimate for p in outcome.answer.plans]
    assert FOUND.accepted == outcome.answer.accepted


def test_the_same_facts_and_match_give_the_same_answer():
    """Pure."""
    assert applied(profile(WORST)) == applied(profile(WORST))


@pytest.fixture
def here(monkeypatch):
    """The software and files of this machine."""
    monkeypatch.setattr(fingerprint, "installed", lambda: SOFTWARE)
    monkeypatch.setattr(fingerprint, "checkpoint", lambda *_: FILES)


@pytest.mark.usefixtures("here")
def test_matching_finds_truths_and_priors(tmp_path):
    """The same software: a truth; another driver, or an import: a prior with the reason."""
    other = probed("2xL40S", driver="999.1")
    moved = fingerprint.fingerprint(other, MODEL, "0.33.0", SOFTWARE, FILES)
    plan = replace(WORST, checkpoint=MODEL.name)
    with ProfileStore.open(tmp_path / "a.db") as store:
        truth = store.save_profile(profile(plan))
        aged = store.save_profile(profile(plan, fingerprint=moved))
        theirs = store.save_profile(profile(plan, provenance=Provenance(Origin.IMPORTED)))
    match = profiles.matching(FACTS, tmp_path / "a.db", SIBLINGS)
    assert [truth] == [found.id for found in match.truths]
    why = {found.id: reason for found, reason in match.priors}
    assert {aged: "driver is 580.95, it was 999.1"} == {k: v for k, v in why.items() if k != theirs}
    assert "imported and not measured here" in why[theirs]


@pytest.mark.usefixtures("here")
def test_matching_without_a_store_or_a_match_is_none(tmp_path):
    """No file, an empty store, profiles of another model: None, and nothing is made."""
    path = tmp_path / "a.db"
    assert None is profiles.matching(FACTS, path)
    assert not path.exists()
    with ProfileStore.open(path) as store:
        assert None is profiles.matching(FACTS, path)
        elsewhere = replace(WORST, checkpoint=MODEL.name)
        loose = fingerprint.loose(FACTS.node, models.find("Qwen/Qwen3-14B"), "0.33.0")
        made = profile(elsewhere)
        store.save_profile(made._replace(fingerprint=made.fingerprint._replace(loose=loose)))
    assert None is profiles.matching(FACTS, path)


def test_unread_software_is_a_prior(tmp_path):
    """Nothing installed here: the profile predicts, and the reason names the first reading that lacks."""
    with ProfileStore.open(tmp_path / "a.db") as store:
        store.save_profile(profile(replace(WORST, checkpoint=MODEL.name)))
    match = profiles.matching(FACTS, tmp_path / "a.db")
    assert () == match.truths
    assert "was not read now" in match.priors[0][1]


def test_a_store_that_cannot_be_read_is_a_note(tmp_path):
    """Advice is given all the same."""
    (tmp_path / "a.db").write_text("no database" * 100)
    match = profiles.matching(FACTS, tmp_path / "a.db")
    assert ((), ()) == (match.truths, match.priors)
    assert "no measured profile was looked for" in match.notes[0]


def test_what_others_measured_is_told_with_its_source(tmp_path):
    """A public figure of the same model on the same device: a line, never a correction."""
    asked = Facts(probed("8xH200"), models.find("openai/gpt-oss-120b"), PRESETS["chat"], FACTS.vllm)
    match = profiles.matching(asked, tmp_path / "absent.db")
    assert ((), 3) == (match.truths, len(match.reported))
    assert all("https://" in line and "tok/s" in line for line in match.reported)


def test_lines_and_document_say_the_same():
    """The text below the answer and the JSON beside it."""
    match = Match((profile(WORST),), (), CHECKPOINTS, reported=("a line",))
    outcome = adoption.apply(FOUND, match)
    text = "\n".join(profiles.lines(outcome, match))
    assert "plan 1 was measured on 2026-01-01: 2,000 tok/s" in text
    assert "reported by others: a line" in text
    plain = profiles.document(outcome, match)
    assert (1, "4f1c00000000", "measurement") == (
        plain["measured_plan"], plain["profile"], plain["measurement"]["kind"],
    )  # fmt: skip
    assert [] == profiles.lines(applied(), Match())
