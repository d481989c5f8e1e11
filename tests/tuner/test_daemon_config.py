"""daemon.toml: its example, its units, and one line for everything that is wrong with it."""

import pytest
from typer.main import get_command

from vllm_advisor.errors import BadInput
from vllm_advisor.workload import Sla
from vllm_tuner.cli.app import app
from vllm_tuner.daemon.allowance import AllowanceLimits
from vllm_tuner.daemon.config import SEARCH_OPTIONS, Secret, UnitConfig, load, parse
from vllm_tuner.daemon.config_fields import FIELDS, example
from vllm_tuner.daemon.drift_reason import DriftLimits
from vllm_tuner.daemon.idle import IdleLimits
from vllm_tuner.daemon.policy_state import Mode, Timing


def test_the_example_is_the_defaults():
    """The shipped file says every key and equals an empty one, and both are the defaults of the program."""
    found = parse(example())

    assert parse("") == found
    assert (DriftLimits(), IdleLimits(), AllowanceLimits(), Timing()) == (
        found.drift, found.idle, found.allowance, found.timing,
    )  # fmt: skip
    assert all(f"\n{row.key} = " in example() for row in FIELDS)
    assert Mode.ADVISE is found.mode


def test_units():
    """Hours, minutes, days, kWh and MiB become the program's seconds, watt-hours and bytes."""
    found = parse(
        """
        mode = "adopt"
        [unit]
        kind = "systemd"
        name = "vllm.service"
        [windows]
        open = "22:00-06:00"
        time_zone = "Europe/Berlin"
        [allowance]
        hours_a_day = 2
        kwh_a_day = 1.5
        [drift]
        oldest_profile_days = 30
        hold_minutes = 0.5
        [idle]
        most_others_mib = 1
        [adopt]
        canary_minutes = 2
        [deployment]
        node = "n1"
        most_ttft_ms = 500
        api_key_env = "KEY"
        """
    )

    assert (7200, 1500, "n1") == (
        found.allowance.seconds_a_day,
        found.allowance.watt_hours_a_day,
        found.allowance.seed,
    )
    assert (30 * 86400, 30, 1 << 20, 120) == (
        found.drift.age_s, found.drift.hold_s, found.idle.others_bytes, found.timing.canary_s,
    )  # fmt: skip
    assert (Mode.ADOPT, UnitConfig("systemd", "vllm.service")) == (found.mode, found.unit)
    assert (Sla(500.0), Secret("KEY", "")) == (found.deployment.sla, found.deployment.api_key)
    assert isinstance(found.idle.others_bytes, int)


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("mod = 'advise'", "no key 'mod'", "did you mean mode?"),
        ("[idle]\nmost_utilisation_share = 0.1", "[idle] no key", "did you mean most_utilization_share?"),
        ("[drfit]\nhold_minutes = 1", "no key 'drfit'", "did you mean drift?"),
        ("drift = 3", "drift is a section", "write [drift] on a line of its own"),
        ("[idle]\nxyzzy = 1", "no key 'xyzzy'", "one of most_utilization_share"),
        ("mode = 'auto'", "mode = 'auto'", "one of observe, advise, adopt"),
        ("mode = 3", "mode = 3 is not a text in quotes", "mode: "),
        ("tick_seconds = 0", "tick_seconds = 0 is not within 0.05 and 3600", "between two looks"),
        ("tick_seconds = nan", "is not within", ""),
        ("tick_seconds = true", "is no number", ""),
        ("[idle]\nsamples = 1.5", "samples = 1.5 is no whole number", ""),
        ("[tuning]\nkernels = 1", "kernels = 1 is not true or false", ""),
        ("[tuning]\noptions = ['--store=/x']", "options: '--store=/x'", "--sensitivity"),
        ("[windows]\nopen = [1]", "open is no list of texts", ""),
        ("[windows]\nopen = []", "nothing would ever be tuned", ""),
        ("[windows]\ntime_zone = 'Europe/Berlni'", "no time zone", "Europe/Berlin"),
        ("[status]\ntoken = 'abc'", "no secret stands in this file", "token_env, or token_file"),
        ("[deployment]\napi_key = 'abc'", "no secret stands in this file", "api_key_env"),
        ("[status]\ntcp_port = 9000", "tcp_port needs a token", "token_env"),
        ("[status]\ntcp_port = 90000", "not within 0 and 65535", ""),
        ("mode = 'adopt'", "needs a unit to restart", "[unit] kind"),
        ("[unit]\nkind = 'systemd'", "needs a name", ""),
        ("[webhook]\nurl = 'http://x'", "must begin with https://", ""),
        ("[webhook]\nurl = 'https://u:p@x'", "holds a password", ""),
        ("[deployment]\nurl = 'http://u:p@x:8000'", "holds a password", ""),
        ("= 3", "is no TOML", "--example"),
    ],
)
def test_refused(text, says, hint):
    """Each mistake is one line that names the key, with what to write; a secret is never repeated."""
    with pytest.raises(BadInput) as caught:
        parse(text)

    assert says in caught.value.message
    assert hint in caught.value.hint
    assert "\n" not in caught.value.message
    assert "abc" not in caught.value.message


def test_files(tmp_path):
    """A file is read; one that is not there, or no text, is one line."""
    path = tmp_path / "daemon.toml"
    path.write_text("tick_seconds = 5\n", encoding="utf-8")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")

    assert 5.0 == load(path).tick_s
    with pytest.raises(BadInput, match="No such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(BadInput, match="no UTF-8 text"):
        load(binary)


def test_options_are_those_of_the_search():
    """Every word that an operator may hand on is one that `tuner serve` takes."""
    taken = {word for option in get_command(app).commands["serve"].params for word in option.opts}
    assert set(SEARCH_OPTIONS) <= taken
