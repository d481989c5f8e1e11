"""`advisor wizard --web`: who is let in, who is not, and what a real browser shows."""

import asyncio
import base64
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


pytest.importorskip("textual_serve")

import aiohttp
from aiohttp.test_utils import TestServer as Served

from vllm_advisor.errors import UsageError
from vllm_advisor.tui import web


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TOKEN = "a" * 43


def ask(path, token=None, cookies=None, **headers):
    """GET a path of a server whose command only says that it was started; status, text and the cookies set."""

    async def run():
        server = web.TokenServer("echo started", 8765, TOKEN)
        async with Served(await server._make_app(), host=web.HOST) as served:
            params = {"token": token} if token is not None else {}
            async with aiohttp.ClientSession(cookies=cookies) as session:
                url = f"http://{web.HOST}:{served.port}{path}"
                async with session.get(url, params=params, headers=headers, allow_redirects=False) as answer:
                    return answer, await answer.text()

    return asyncio.run(run())


@pytest.mark.parametrize("path", ["/", "/ws", "/static/js/textual.js", "/download/x", "/nothing"])
@pytest.mark.parametrize(
    ("token", "cookie"), [(None, None), ("", None), ("wrong", None), (TOKEN[:-1], None), (None, "no"), ("é", "ü")]
)
def test_without_the_token_nothing_is_told(path, token, cookie):
    """Every address is refused alike, the websocket and what does not exist, too."""
    answer, text = ask(path, token, {"advisor-wizard-8765": cookie} if cookie else None)
    assert 403 == answer.status
    assert "textual" not in text.lower()


def test_the_token_becomes_a_cookie_and_leaves_the_address():
    """So that it stands in no history; scripts can't read the cookie, other sites' requests don't carry it."""
    answer, _ = ask("/?fontsize=20", TOKEN)
    cookie = answer.cookies["advisor-wizard-8765"]
    assert (302, "/?fontsize=20") == (answer.status, answer.headers["Location"])
    assert (TOKEN, True, "Strict") == (cookie.value, cookie["httponly"], cookie["samesite"])


def test_with_the_cookie_the_page_and_what_it_needs_are_served():
    """The page names nothing that its policy would let it load from elsewhere."""
    cookies = {"advisor-wizard-8765": TOKEN}
    page, text = ask("/", cookies=cookies)
    script, _ = ask("/static/js/textual.js", cookies=cookies)
    assert (200, 200) == (page.status, script.status)
    assert "advisor wizard" in text
    assert page.headers["Content-Security-Policy"].startswith("default-src 'self'")
    assert "no-referrer" == page.headers["Referrer-Policy"]


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example:8765"}, {"Host": "localhost:8765"}, {"Origin": "http://evil.example"}, {"Origin": "null"}],
)
def test_another_name_and_another_page_are_refused(headers):
    """Even with the cookie: a name that somebody points to 127.0.0.1, and a websocket from another site."""
    answer, _ = ask("/ws", cookies={"advisor-wizard-8765": TOKEN}, **headers)
    assert 403 == answer.status


def test_every_start_has_another_token():
    """Long enough not to be guessed."""
    tokens = {web.TokenServer("true", 1).token for _ in range(10)}
    assert 10 == len(tokens)
    assert all(len(token) >= 43 for token in tokens)


def test_a_taken_port_is_one_line():
    """With what to do."""
    with socket.socket() as taken:
        taken.bind((web.HOST, 0))
        taken.listen()
        with pytest.raises(UsageError, match="cannot be used"):
            web.serve("true", taken.getsockname()[1], print)


# -- in a browser


def free_port():
    with socket.socket() as probe:
        probe.bind((web.HOST, 0))
        return probe.getsockname()[1]


@contextmanager
def serving(tmp_path):
    """`advisor wizard --web` in a process group of its own, and the address that it prints; the group is empty then."""
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment |= {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "ADVISOR_WIZARD_STATE": str(tmp_path / "state.json"),
    }
    argv = [sys.executable, "-m", "vllm_advisor", "wizard", "--web", "--port", str(free_port()), "--gpu", "8xH100"]
    served = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    try:
        yield served, served.stdout.readline().split()[1]
    finally:
        served.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            served.wait(timeout=60)
        served.stdout.close()
        left = members(served.pid)
        for number in left:
            os.kill(number, signal.SIGKILL)
    assert [] == left


@pytest.fixture
def address(tmp_path):
    """The address to open, and a clean end by Ctrl+C."""
    with serving(tmp_path) as (served, found):
        yield found
    assert 0 == served.returncode


def members(group):
    """Processes of a group that are not dead yet."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z" and int(fields[2]) == group:
            found.append(int(stat.parent.name))
    return found


class Browser:
    """Headless Chromium by its own protocol: opens a page, presses keys, and hears what the page's websocket got."""

    def __init__(self, session, socket_):
        self._session, self._socket, self._number = session, socket_, 0
        self.heard, self.statuses = "", {}

    async def call(self, method, **params):
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        number = self._number
        while True:
            message = await self._next()
            if message.get("id") == number:
                return message.get("result", {})

    async def _next(self):
        message = json.loads((await self._socket.receive(timeout=120)).data)
        params = message.get("params", {})
        if message.get("method") == "Network.webSocketFrameReceived":
            data = params["response"]["payloadData"]
            raw = base64.b64decode(data) if params["response"]["opcode"] == 2 else data.encode()
            self.heard += raw.decode("utf-8", "replace")
        if message.get("method") == "Network.responseReceived":
            self.statuses[params["response"]["url"]] = params["response"]["status"]
        return message

    async def until(self, words):
        """Until all of them were drawn, whatever stands between them."""
        while not all(word in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.heard) for word in words):
            await self._next()

    async def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def key(self, key, code, number):
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=number)


async def browse(tmp_path, steps):
    """Run `steps` with a Browser; Chromium ends with it."""
    argv = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
        "--disable-component-update", "--window-size=1200,800", "--remote-debugging-port=0",
        f"--user-data-dir={tmp_path / 'chromium'}", "about:blank",
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *argv, stderr=asyncio.subprocess.PIPE, env=os.environ | {"HOME": str(tmp_path)}
    )
    try:
        while b"DevTools listening" not in (line := await asyncio.wait_for(process.stderr.readline(), 120)):
            assert line, "Chromium ended"
        port = re.search(rb"ws://[^:]+:(\d+)/", line)[1].decode()
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                pages = [page for page in await answer.json() if page["type"] == "page"]
            async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket_:
                browser = Browser(session, socket_)
                await browser.call("Network.enable")
                await browser.call("Page.enable")
                return await steps(browser)
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM, reason="no chromium")
def test_the_first_screen_renders_and_a_key_works(tmp_path, address):
    """In headless Chromium: the hardware step is drawn, F1 brings the help, and the picture is not empty."""

    async def steps(browser):
        await browser.call("Page.navigate", url=address)
        await browser.until(["1 hardware", "Which machine will serve?", "NVIDIA H100 SXM"])
        browser.heard = ""
        await browser.click(600, 400)  # the page's terminal has the keyboard then
        await browser.key("F1", "F1", 112)
        await browser.until(["Keys of this screen"])
        shot = await browser.call("Page.captureScreenshot", format="png")
        where = await browser.call("Runtime.evaluate", expression="location.href")
        return base64.b64decode(shot["data"]), where["result"]["value"]

    picture, where = asyncio.run(browse(tmp_path, steps))
    (tmp_path / "first.png").write_bytes(picture)
    assert len(picture) > 20_000
    assert "token" not in where


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM, reason="no chromium")
def test_a_wrong_token_is_refused_in_a_browser(tmp_path, address):
    """The page is a 403, and a websocket that the page opens by itself never opens."""
    wrong = address[:-4] + "zzzz"

    async def steps(browser):
        await browser.call("Page.navigate", url=wrong)
        while wrong not in browser.statuses:
            await browser._next()
        script = (
            "new Promise(done => { const s = new WebSocket(location.origin.replace('http', 'ws') + '/ws');"
            "s.onopen = () => done('open'); s.onerror = () => done('refused'); })"
        )
        tried = await browser.call("Runtime.evaluate", expression=script, awaitPromise=True)
        return browser.statuses[wrong], tried["result"]["value"]

    assert (403, "refused") == asyncio.run(browse(tmp_path, steps))


@pytest.mark.browser
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="no pidfd")
def test_the_wizard_ends_with_a_killed_server(tmp_path):
    """kill -9 of the server: the wizard that it ran sees that its parent is gone, and ends."""

    async def opened(address):
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            async with session.get(address):
                pass
            async with session.ws_connect(address.partition("/?")[0].replace("http", "ws") + "/ws") as ws:
                await ws.receive(timeout=60)
                found = [os.pidfd_open(number) for number in members(served.pid) if number != served.pid]
                served.kill()
                return found

    with serving(tmp_path) as (served, address):
        wizards = asyncio.run(opened(address))
        ended = [select.select([wizard], [], [], 60)[0] for wizard in wizards]
    assert 1 == len(wizards)
    assert all(ended)
