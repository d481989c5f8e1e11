"""What several files need: a real systemd with units under it, and real container engines."""

import re

import pytest

from vllm_advisor.errors import EngineError
from vllm_tuner.daemon import testing_engines


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    """A user's manager, of one module alone; its folder's name is short, for the paths of its sockets."""
    from vllm_tuner.daemon.testing_systemd import Absent, Manager

    try:
        made = Manager(tmp_path_factory.mktemp("m"))
    except Absent as error:
        pytest.skip(f"no systemd: {error}")
    yield made
    made.close()


@pytest.fixture
def unit(manager, request):
    """Makes and starts a unit of this test's name: `unit(lines of [Service])`; it ends with the test."""
    from vllm_tuner.daemon.units.systemd import Systemd

    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)[:60] + ".service"

    def make(*lines, start=True):
        manager.write(name, "\n".join(("[Service]", *lines)) + "\n")
        if start:
            manager.call("start", name)
        return Systemd(name, manager.units, manager.systemctl)

    yield make
    manager.end(name)


@pytest.fixture(scope="module", params=testing_engines.KINDS)
def engine_daemon(request):
    """A real container engine, of one module alone."""
    try:
        with testing_engines.engine(request.param) as made:
            yield made
    except EngineError as error:
        pytest.skip(error.message)


@pytest.fixture
def engine(engine_daemon):
    """The engine, empty afterwards."""
    yield engine_daemon
    engine_daemon.clear()
