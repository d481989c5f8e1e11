"""The load of the busiest time of the last day, from counters as a server prints them."""

import pytest

from vllm_advisor.vllm.metrics import parse
from vllm_tuner.daemon.busiest import DAY_S, Busiest, Counted


HOUR = 3600.0
BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class Server:
    """Counters that grow hour by hour, as text that is parsed again."""

    def __init__(self, at=1_000_000.0):
        self.at, self.lengths, self.seconds = at, {"prompt": [], "generation": []}, 0.0
        self.busiest = Busiest()
        self.busiest.anew(self.reading())

    def reading(self):
        lines = [f"vllm:request_success_total {len(self.lengths['prompt'])}"]
        for what, lengths in self.lengths.items():
            name = f"vllm:request_{what}_tokens"
            lines += [f'{name}_bucket{{le="{b}"}} {sum(n <= b for n in lengths)}' for b in BUCKETS]
            lines += [
                f'{name}_bucket{{le="+Inf"}} {len(lengths)}',
                f"{name}_sum {sum(lengths)}",
                f"{name}_count {len(lengths)}",
            ]
        name, number = "vllm:e2e_request_latency_seconds", len(self.lengths["prompt"])
        lines += [f'{name}_bucket{{le="{b}"}} {number}' for b in (1000, "+Inf")]
        lines += [f"{name}_sum {self.seconds}", f"{name}_count {number}"]
        return Counted(self.at, self.at, parse("\n".join(lines)))

    def hours(self, requests, prompt, seconds=36.0, hours=1):
        """So many requests an hour, each of `seconds`."""
        for _ in range(hours):
            self.at += HOUR
            self.lengths["prompt"] += [prompt] * requests
            self.lengths["generation"] += [50] * requests
            self.seconds += requests * seconds
            self.busiest.see(self.reading(), 3 * HOUR)

    def prompt(self, since=0.0):
        """The mean prompt of what would be tuned for."""
        load = self.busiest.load(since)
        return load.inputs.total / load.requests


def test_a_quiet_night_does_not_hide_the_day():
    """At three in the morning the load is that of the busiest hour: its lengths, its rate, and what was in flight."""
    server = Server()
    server.hours(100, 150, hours=8)
    server.hours(400, 300)
    server.hours(30, 20, hours=8)
    found = server.busiest.load()
    assert (300, 400 / HOUR) == (server.prompt(), found.rate)
    assert pytest.approx(400 * 36 / HOUR) == found.in_flight  # Little's law: the gauges hold nobody at night


def test_a_moved_workload_counts_from_where_it_moved():
    """The old load was busier, and is no longer there."""
    server = Server()
    server.hours(400, 300, hours=4)
    moved = server.at
    server.hours(100, 900, hours=2)
    server.hours(30, 900, hours=2)
    assert (300, 900) == (server.prompt(), server.prompt(moved))
    assert 100 / HOUR == server.busiest.load(moved).rate
    assert 900 == server.prompt(server.at)  # no block has begun since: the newest


def test_what_is_older_than_a_day_is_forgotten():
    """Yesterday's peak does not outlive the day."""
    server = Server()
    server.hours(400, 300)
    server.hours(50, 100, hours=23)
    assert 300 == server.prompt()
    server.hours(50, 100, hours=2)
    assert 100 == server.prompt()


def test_few_requests_make_a_longer_block():
    """Seven an hour speak for themselves after three hours."""
    server = Server()
    server.hours(7, 200, hours=2)
    assert server.busiest.load().rate is None  # as yet it is the server's life
    server.hours(7, 200)
    assert 7 / HOUR == server.busiest.load().rate


@pytest.mark.parametrize("requests", [0, 3])
def test_a_server_that_few_ask(requests):
    """Nothing for nobody; what its life says, without a rate, where nothing makes a block in hours."""
    server = Server()
    server.hours(requests, 200, hours=7)
    found = server.busiest.load()
    assert found is None if requests == 0 else (found.rate, found.requests) == (None, 21)


def test_a_clock_that_was_set_back_leaves_no_block_in_the_future():
    server = Server()
    server.hours(400, 300)
    server.at -= DAY_S
    server.busiest.anew(server.reading())
    server.hours(50, 100)
    assert 100 == server.prompt()


def test_it_outlives_the_process():
    """What was busy is kept as a text; another text is named and begun anew."""
    server = Server()
    server.hours(400, 300)
    server.hours(50, 100)
    text = server.busiest.dumps()
    assert text == Busiest.loads(text).dumps()
    assert 300 == Busiest.loads(text).load().inputs.mean


@pytest.mark.parametrize("broken", ["{", "[1]", '[[0, 1, {"schema": 9}]]', "[[0, 1, null]]", "7"])
def test_another_text_is_none_of_ours(broken):
    with pytest.raises(ValueError, match=r"Expecting|not the loads|schema"):
        Busiest.loads(broken)
