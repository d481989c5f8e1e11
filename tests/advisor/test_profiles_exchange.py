"""A profile as a file: what leaves, what comes back, and everything that is refused on the way."""

import math
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_advisor.errors import BadInput
from vllm_advisor.hardware import Unknown
from vllm_advisor.plan import Plan
from vllm_advisor.profile import Fingerprint, Measurement, Origin, Profile, Provenance, QualityResult
from vllm_advisor.store import exchange
from vllm_advisor.units import Interval
from vllm_advisor.workload import PRESETS


KEY, OTHER = b"0123456789abcdef", b"fedcba9876543210"
FINGERPRINT = Fingerprint((("driver", Unknown("not read")), ("gpus", "2xL40S")), (("gpus", "2xL40S"),))
MEASURED = Measurement((("output_tok_s", Interval(90.0, 100.5, 110.0)),), PRESETS["rag"], 3, 60.0, "bench", 1000.0)
CHECK = QualityResult("kl", Interval(0.0, 0.01, 0.02), 0.05, True, "on 64 prompts", 1000.0)
ORIGIN = Provenance(Origin.MEASURED, "tuner 0.1", 1_767_225_600.0, "secret-host", note="first run", trials=(1, 2))
FLAGS = (("--async-scheduling", True), ("--stream-interval", 8))
PLAN = Plan("org/model", env=(("VLLM_A", "1"),))
PROFILE = Profile(FINGERPRINT, PLAN, MEASURED, (CHECK,), ORIGIN, "org/model", "4f1c", FLAGS)


def test_what_is_measured_comes_back_as_imported():
    """Plan, figures, accuracy and fingerprint as they were; origin, trials and node are not taken over."""
    back = exchange.parse(exchange.export(PROFILE).encode(), source="a.toml")
    assert (PROFILE.fingerprint, PROFILE.plan, PROFILE.measurement, PROFILE.quality, PROFILE.model, PROFILE.flags) == (
        back.fingerprint, back.plan, back.measurement, back.quality, back.model, back.flags,
    )  # fmt: skip
    note = "measured elsewhere, 2 trials behind it; first run"
    assert Provenance(Origin.IMPORTED, "tuner 0.1", 1_767_225_600.0, source="a.toml", note=note) == back.provenance
    assert not back.is_truth


def test_no_secret_and_no_home_leaves():
    """Tokens, secret variables, home folders, local paths and the host's name stay here."""
    home = str(Path.home())
    secret = "hf_" + "a1B2" * 6
    plan = Plan(
        f"{home}/models/mine",
        env=(("HF_TOKEN", secret), ("CACHE", "/home/me/.cache"), ("OPENAI_API_KEY", "x"), ("VLLM_KEPT", "1")),
    )
    origin = ORIGIN._replace(note=f"run by /Users/me/x with {secret}", source=f"{home}/notes.txt")
    text = exchange.export(PROFILE._replace(plan=plan, provenance=origin, model=f"{home}/models/mine"))
    for word in (secret, home, "/home/me", "/Users/me", "secret-host", "HF_TOKEN", "OPENAI_API_KEY"):
        assert word not in text
    back = exchange.parse(text.encode())
    assert ("mine", "mine", (("VLLM_KEPT", "1"),)) == (back.model, back.plan.checkpoint, back.plan.env)


def test_the_digest_covers_content_and_not_layout():
    """Comments and spaces may change, one figure may not."""
    text = exchange.export(PROFILE)
    exchange.parse(("# a comment\n\n" + text.replace(" = ", "   =   ")).encode())
    with pytest.raises(BadInput, match="digest"):
        exchange.parse(text.replace("100.5", "900.5").replace("110.0", "990.0").encode())


def test_a_signature_says_who(tmp_path):
    """The right key passes; another, none in the file, and a short one are refused."""
    signed = exchange.export(PROFILE, KEY).encode()
    assert PROFILE.plan == exchange.parse(signed, KEY).plan == exchange.parse(signed).plan
    for raw, key, says in (
        (signed, OTHER, "not signed with this key"),
        (exchange.export(PROFILE).encode(), KEY, "is not signed"),
        (signed, b"short", "has 5 bytes"),
    ):
        with pytest.raises(BadInput, match=says):
            exchange.parse(raw, key)
    with pytest.raises(BadInput, match="cannot be read"):
        exchange.read_key(tmp_path / "absent")


def resealed(**changes):
    """A file whose digest is right for a changed content: what somebody with our source could write."""
    content = exchange.document(PROFILE)
    for path, value in changes.items():
        *above, last = path.split("__")
        place = content
        for name in above:
            place = place[name]
        place[last] = value
    seals = {"schema": 1, "kind": exchange.KIND, "digest": exchange.digest(content)}
    return exchange.toml(seals | content).encode()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"plan__tensor_parallel_size": -1}, "at least 1"),
        ({"plan__command": "curl"}, "does not know"),
        ({"plan__env": {"API_KEY": "x"}}, "secret"),
        ({"plan__env": {"LD_PRELOAD": "x.so"}}, "may not"),
        ({"plan__env": {"VLLM_PLUGINS": "theirs"}}, "may not"),
        ({"plan__env": {"VLLM_TUNED_CONFIG_FOLDER": "/srv/x"}}, "may not"),
        ({"plan__checkpoint": "/etc/passwd"}, "a repository"),
        ({"plan__checkpoint": "../up"}, "a repository"),
        ({"flags": {"--trust-remote-code": True}}, "may not set"),
        ({"flags": {"--dtype": "float16"}}, "may not set"),
        ({"flags": {"-c": "x"}}, "no flag"),
        ({"flags": {"--scheduling-policy": "/srv/x"}}, "the value"),
        ({"measurement__figures": {"output_tok_s": [5.0, 1.0, 9.0]}}, "must rise"),
        ({"measurement__repeats": 0}, "at least 1"),
        ({"fingerprint__strict": {}}, "says nothing"),
        ({"fingerprint__more": {"a": "b"}}, "does not know"),
        ({"provenance__at": "yesterday"}, "provenance.at"),
        ({"quality": [{"check": "kl"}]}, "quality.value"),
        ({"quality": 5}, "no list"),
        ({"extra": 1}, "does not know"),
        ({"model": 7}, "model"),
    ],
)
def test_a_right_digest_is_no_trust(changes, says):
    """Types, ranges and unknown names are refused whatever the seal says."""
    with pytest.raises(BadInput, match=says):
        exchange.parse(resealed(**changes))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "no profile"),
        (b"\xff\xfe", "no TOML"),
        (b"a = [", "no TOML"),
        (b"a = " + b"[" * 5000, "no TOML"),
        (b'kind = "something else"', "no profile"),
        (b'kind = "vllm-advisor profile"\nschema = 9', "upgrade|reads 1"),
        (b'kind = "vllm-advisor profile"\nschema = "1"', "schema"),
    ],
)
def test_other_files_are_refused(raw, says):
    """Empty, binary, broken, deep, foreign, newer."""
    with pytest.raises(BadInput, match=says):
        exchange.parse(raw)


def test_a_file_is_named_in_its_error(tmp_path):
    """With a hint, and a file larger than any profile is not read."""
    (tmp_path / "big.toml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(BadInput, match=r"big\.toml is larger"):
        exchange.read(tmp_path / "big.toml")
    (tmp_path / "bad.toml").write_text("x = 1")
    with pytest.raises(BadInput, match=r"^bad\.toml: the profile has a field 'x'") as caught:
        exchange.read(tmp_path / "bad.toml")
    assert caught.value.hint
    with pytest.raises(BadInput, match="cannot be read"):
        exchange.read(tmp_path / "absent.toml")


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBER = st.one_of(st.integers(-(2**62), 2**62), st.floats(allow_nan=False, allow_infinity=False))
PLAIN = st.recursive(
    st.one_of(st.booleans(), NUMBER, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(TEXT, PLAIN, max_size=4))
def test_toml_comes_back(plain):
    """Whatever is written is read as the same by the standard library's reader."""
    if not _mixed(plain):
        assert plain == tomllib.loads(exchange.toml(plain))


def _mixed(value):
    """Lists that hold tables and other things, or lists of lists of tables: no profile has them."""
    if isinstance(value, dict):
        return any(_mixed(item) for item in value.values())
    if isinstance(value, list):
        tables = [isinstance(item, dict) for item in value]
        return (
            (any(tables) and not all(tables))
            or any(isinstance(i, list) and _holds_table(i) for i in value)
            or any(map(_mixed, value))
        )
    return False


def _holds_table(value):
    return any(isinstance(i, dict) or (isinstance(i, list) and _holds_table(i)) for i in value)


def test_numbers_survive_exactly():
    """Floats as Python prints them: the digest of what was read is that of what was written."""
    for value in (0.1 + 0.2, 1e-300, 1e22, math.pi):
        assert {"x": value} == tomllib.loads(exchange.toml({"x": value}))


def test_fp32_is_no_danger():
    """A search on a processor that emulates BF16 finds it: what it measured can be carried."""
    assert (("--dtype", "float32"),) == exchange._flags({"--dtype": "float32"})
