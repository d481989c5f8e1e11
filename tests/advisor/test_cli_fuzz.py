"""A damaged config.json through the whole command: an answer, or one line with a hint and exit 2; never a traceback."""

import json
import math
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_advisor import question
from vllm_advisor.candidates import Restrictions
from vllm_advisor.errors import AdvisorError


CONFIGS = [
    entry["config"]
    for file in sorted((Path(__file__).parents[1] / "data" / "model").glob("*.json"))
    for entry in json.loads(file.read_text(encoding="utf-8"))
]
JUNK = st.one_of(
    st.none(), st.booleans(), st.text(max_size=6), st.just(-1), st.just(0), st.just(10**30), st.just(-(10**9)),
    st.just(math.inf), st.integers(-5, 5000), st.lists(st.integers(-3, 99), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)  # fmt: skip


@st.composite
def damaged(draw):
    """A real config with some keys missing and some values of the wrong kind, nested sections included."""
    config = json.loads(json.dumps(draw(st.sampled_from(CONFIGS))))
    for _ in range(draw(st.integers(1, 4))):
        section = draw(st.sampled_from([config, *(v for v in config.values() if isinstance(v, dict) and v)]))
        key = draw(st.sampled_from(sorted(section) or ["hidden_size"]))
        if draw(st.booleans()):
            section[key] = draw(JUNK)
        else:
            section.pop(key, None)
    return config


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(damaged(), st.sampled_from(["8xH100", "L4", "8xMI300X"]))
def test_a_damaged_config_never_gives_a_traceback(tmp_path_factory, config, machine):
    """Whatever stands in the file, `advisor recommend` ends with 0 or 1 and an answer, or with one line and exit 2."""
    file = tmp_path_factory.mktemp("fuzz") / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    asked = question.Question(str(file), machine, None, "0.33.0", question.Load(), Restrictions(), True, None)
    try:
        answer = question.answer(asked, 3).found
    except AdvisorError as error:
        refused = error
    else:
        assert answer.plans or answer.rejected
        return
    assert (2, True) == (refused.exit_code, bool(refused.hint))
    assert "\n" not in refused.message
