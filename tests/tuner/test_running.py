"""What runs now and has to be beaten: a command as its owner wrote it becomes a candidate like any other."""

import pytest

from vllm_advisor.errors import BadInput, StoreError, UsageError
from vllm_tuner.cli.running import running
from vllm_tuner.testing import facts


def made(tmp_path, text):
    """The candidate of `vllm serve MODEL` with such words, before and after it."""
    found = facts(tmp_path / "tiny")
    return running(text.replace("MODEL", found.model.name), found, str(tmp_path / "s.db"), offline=True).candidate


def test_a_command_becomes_its_plan(tmp_path):
    """Limits, formats and variables are the plan's; what the command leaves out is the version's default."""
    text = "VLLM_CPU_KVCACHE_SPACE=2 vllm serve MODEL --max-num-seqs=3 --max_model_len 512 --enforce-eager"
    plan = made(tmp_path, text).plan

    assert (3, 512, True, "auto") == (plan.max_num_seqs, plan.max_model_len, plan.enforce_eager, plan.kv_cache_dtype)
    assert (("VLLM_CPU_KVCACHE_SPACE", "2"),) == plan.env
    assert 128 == made(tmp_path, "vllm serve MODEL --port 9").plan.max_num_seqs


def test_further_options_of_the_engine_go_along(tmp_path):
    """What changes how it computes is a flag of the candidate; names, ports, keys and folders are not."""
    text = (
        "vllm serve MODEL --served-model-name chat --port 9 --api-key k --no-enable-prefix-caching --dtype float32 "
        "--download-dir /data/models --disable-log-stats --tool-call-parser hermes --scheduling-policy priority"
    )
    found = dict(made(tmp_path, text).flags)

    assert {"--no-enable-prefix-caching": True, "--dtype": "float32", "--scheduling-policy": "priority"} == {
        name: value for name, value in found.items() if name != "--disable-log-stats"
    }


def test_its_plan_is_estimated_as_others_are(tmp_path):
    """Memory and speed are known, as the search wants them of every plan."""
    found = facts(tmp_path / "tiny")
    ranked = running(f"vllm serve {found.model.name} --max-num-seqs 2", found, None, offline=True).ranked

    assert (2, True) == (ranked.plan.max_num_seqs, ranked.budget.fits)


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("vllm serve other/model --max-num-seqs 1", UsageError, "--against serves other/model"),
        ("sleep 10", BadInput, "no vLLM server starts in it"),
        ("vllm serve 'MODEL", BadInput, "cannot read the command"),
        ("ffffffffffff", StoreError, "there is no profile"),
    ],
)
def test_what_cannot_run(tmp_path, text, error, says):
    """Another model, no server, an open quote, no such profile: one line each."""
    with pytest.raises(error, match=says):
        made(tmp_path, text)


def test_an_option_of_a_plugin_is_left_out(tmp_path, capsys):
    """It runs with it, so it is no reason to stop, and it is said."""
    assert 1 == made(tmp_path, "vllm serve MODEL --max-num-seqs 1 --of-a-plugin 7").plan.max_num_seqs
    assert "has no --of-a-plugin: it is left out" in capsys.readouterr().err
