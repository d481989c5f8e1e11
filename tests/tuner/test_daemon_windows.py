"""When a window is open: days, midnights, cron, and the two nights a year on which clocks are set."""

from datetime import UTC, datetime

import pytest

from vllm_advisor.errors import BadInput
from vllm_tuner.daemon.windows import Windows, zone_of


BERLIN = "Europe/Berlin"


def utc(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def shown(moment):
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M")


WEEK = Windows.parse(["Mon-Fri 02:00-05:30", "Sat,Sun 00:00-24:00"], BERLIN)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2026-01-05 00:59:59", False),  # Monday 01:59:59 in Berlin
        ("2026-01-05 01:00:00", True),
        ("2026-01-05 04:29:59", True),
        ("2026-01-05 04:30:00", False),
        ("2026-01-09 22:59:59", False),  # Friday, a second before Saturday
        ("2026-01-09 23:00:00", True),
        ("2026-01-11 22:59:59", True),  # Sunday's last second
        ("2026-01-11 23:00:00", False),
        ("2026-07-06 00:30:00", True),  # summer: 02:30
    ],
)
def test_open_at(at, expected):
    """A window is local: it opens on its first second and is closed on its last."""
    assert expected is WEEK.open_at(utc(at))


def test_next_open_and_close():
    """Friday noon waits for Saturday's midnight; touching windows close once, on Monday's midnight."""
    friday = utc("2026-01-09 11:00")

    assert "2026-01-09 23:00" == shown(WEEK.next_open(friday))
    assert "2026-01-11 23:00" == shown(WEEK.closes_at(utc("2026-01-10 10:00")))
    assert WEEK.closes_at(friday) is None
    assert utc("2026-01-10 10:00") == WEEK.next_open(utc("2026-01-10 10:00"))


def test_over_midnight():
    """22:00-06:00 on Fridays goes on into Saturday, and not from Thursday into Friday."""
    night = Windows.parse(["fri 22:00-06:00"])

    assert [False, True, True, False] == [
        night.open_at(utc(at))
        for at in ("2026-01-09 03:00", "2026-01-09 23:00", "2026-01-10 05:59", "2026-01-10 06:00")
    ]


@pytest.mark.parametrize("days", ["Mon", "monday ", "MON,Fri", "Mon, Fri", "Mon - Tue", "daily", ""])
def test_spelling_of_days(days):
    """Names may be short or long, in any case, with spaces; none at all means every day."""
    assert Windows.parse([f"{days} 02:00-03:00".strip()]).open_at(utc("2026-01-05 02:30"))


def test_days_wrap_around_the_week():
    """Sat-Mon is three days."""
    found = Windows.parse(["Sat-Mon 10:00-11:00"])

    assert ["10", "11", "12", "17"] == [
        shown(found.next_open(utc(f"2026-01-{day:02} 00:00")))[8:10] for day in (7, 11, 12, 13)
    ]


def test_spring_leaves_an_hour_out():
    """On 2026-03-29 Berlin goes from 02:00 to 03:00: a window in between does not open, one over it keeps its end."""
    within = Windows.parse(["02:10-02:50"], BERLIN)
    over = Windows.parse(["02:30-05:30"], BERLIN)

    assert "2026-03-30 00:10" == shown(within.next_open(utc("2026-03-28 12:00")))
    assert "2026-03-29 01:00" == shown(over.next_open(utc("2026-03-28 12:00")))
    assert "2026-03-29 03:30" == shown(over.closes_at(utc("2026-03-29 02:00")))
    assert not over.open_at(utc("2026-03-29 00:59:59"))


def test_autumn_repeats_an_hour():
    """On 2026-10-25 Berlin has 02:00-03:00 twice: a window in it opens at the first, one over it does not close."""
    within = Windows.parse(["02:00-02:30"], BERLIN)
    over = Windows.parse(["02:30-05:30"], BERLIN)
    quarters = [utc("2026-10-25 00:00") + 900 * n for n in range(8)]

    assert [True, True, False, False, False, False, False, False] == [within.open_at(at) for at in quarters]
    assert [False, False, True, True, True, True, True, True] == [over.open_at(at) for at in quarters]
    assert "2026-10-25 04:30" == shown(over.closes_at(utc("2026-10-25 01:00")))


def test_half_hour_zones():
    """Lord Howe Island sets its clocks by half an hour, at 02:00 to 02:30 on 2026-10-04."""
    found = Windows.parse(["02:15-03:00"], "Australia/Lord_Howe")

    assert "2026-10-03 15:30" == shown(found.next_open(utc("2026-10-03 12:00")))


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("0 2 * * 1-5 for 3h", "2026-01-09 12:00", "2026-01-12 02:00"),
        ("30 1 * * sun for 90m", "2026-01-09 12:00", "2026-01-11 01:30"),
        ("0 3 1 * * for 1h30m", "2026-01-09 12:00", "2026-02-01 03:00"),
        ("0 3 13 * fri for 1h", "2026-01-09 12:00", "2026-01-13 03:00"),  # either, as cron does
        ("0 0 29 feb * for 2h", "2026-01-09 12:00", "2028-02-29 00:00"),
        ("0 */6 * * * for 1h", "2026-01-09 13:00", "2026-01-09 18:00"),
        ("0 4 * * 7 for 1h", "2026-01-09 12:00", "2026-01-11 04:00"),
    ],
)
def test_cron(text, after, expected):
    """Five fields and a duration, with names, steps, 7 for Sunday and cron's own rule for two kinds of days."""
    assert expected == shown(Windows.parse([text]).next_open(utc(after)))


def test_cron_over_days():
    """A window of a weekend that starts on Friday night is open on Sunday."""
    found = Windows.parse(["0 22 * * fri for 50h"])

    assert found.open_at(utc("2026-01-11 12:00"))
    assert "2026-01-12 00:00" == shown(found.closes_at(utc("2026-01-11 12:00")))


def test_every_minute_is_one_window():
    """Overlapping starts are one window that never closes."""
    always = Windows.parse(["* * * * * for 3h"])

    assert always.open_at(utc("2026-01-11 12:00"))
    assert always.closes_at(utc("2026-01-11 12:00")) is None


def test_never():
    """31 February is no day, and says so."""
    never = Windows.parse(["0 0 31 2 * for 1h"])

    assert never.next_open(utc("2026-01-11 12:00")) is None
    assert "the next window opens never" == never.permit(utc("2026-01-11 12:00")).why


def test_permit():
    """A closed window says when it opens, in local time."""
    assert (False, "window", "the next window opens Sat 2026-01-10 00:00") == WEEK.permit(utc("2026-01-09 11:00"))
    assert WEEK.permit(utc("2026-01-10 11:00")).granted
    assert 3600 == WEEK.offset_s(utc("2026-01-10 11:00"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Mon-Fri", "no window"),
        ("Mon 25:00-26:00", "25:00"),
        ("Mon 24:30-25:00", "24:30"),
        ("Mon 02:60-03:00", "02:60"),
        ("Mon 02:00-02:00", "no time in it"),
        ("Mon 24:00-03:00", "no time in it"),
        ("Monk 02:00-03:00", "'monk'"),
        ("mo 02:00-03:00", "'mo'"),
        ("Fun 02:00-03:00", "'fun'"),
        ("Mon-Fun 02:00-03:00", "'mon-fun'"),
        ("61 2 * * * for 1h", "'61'"),
        ("0 2 * * 1-5", "no window"),
        ("0 2 * * 1-5 for ever", "for ever"),
        ("0 2 * * 5-1 for 1h", "'5-1'"),
        ("0 2 * * x for 1h", "'x'"),
        ("0 2 * * 1/0 for 1h", "'1/0'"),
        ("0 2 * * 1 for 30d", "30d"),
        ("0 2 * * 1 for 999h", "a minute to a week"),
        ("", "no window"),
    ],
)
def test_refused(text, says):
    """What is no window is one line with the words that are wrong, and a hint."""
    with pytest.raises(BadInput) as caught:
        Windows.parse([text])

    assert says in caught.value.message
    assert "Mon-Fri 02:00-05:30" in caught.value.hint


def test_no_window():
    """An empty list would silently tune never."""
    with pytest.raises(BadInput, match="nothing would ever be tuned"):
        Windows.parse([])


@pytest.mark.parametrize("name", ["Europe/Berlni", "../etc/passwd", "Europe", "", "a\0b"])
def test_unknown_zone(name):
    """A name that is none is refused, whatever is in it."""
    with pytest.raises(BadInput, match="no time zone"):
        zone_of(name)


def test_meant_zone():
    """A slip is named."""
    with pytest.raises(BadInput) as caught:
        zone_of("Europe/Berlni")

    assert "did you mean Europe/Berlin?" == caught.value.hint


def test_no_zones_at_all():
    """A machine without tzdata is told what to install; UTC works there."""
    import zoneinfo

    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache()
    try:
        with pytest.raises(BadInput) as caught:
            zone_of("Europe/Berlin")
        assert Windows.parse(["02:00-03:00"], "UTC").open_at(utc("2026-01-05 02:30"))
    finally:
        zoneinfo.reset_tzpath(to=before)

    assert "pip install tzdata, or write UTC" == caught.value.hint
