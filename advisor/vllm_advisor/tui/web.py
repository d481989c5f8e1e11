"""The wizard in a browser: textual-serve on 127.0.0.1, for whoever has the token of the address that was printed.

A page that runs in the same browser must not reach it: a request needs the token once, then a cookie that only this
page's own requests carry; the name it was asked by must be 127.0.0.1 (a name that somebody points there is refused),
and a websocket must come from the page itself.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from aiohttp import web
from textual_serve.server import Server

from vllm_advisor.errors import UsageError


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HOST = "127.0.0.1"
_HEADERS = {
    # Its page names a font elsewhere: what a browser shows of this machine is nobody else's business.
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' data: blob:; connect-src 'self' ws:; "
    "frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class TokenServer(Server):
    """textual-serve behind a token."""

    def __init__(self, command: str, port: int, token: str = "") -> None:
        super().__init__(command, host=HOST, port=port, title="advisor wizard")
        self.token = token or secrets.token_urlsafe(32)
        self.cookie = f"advisor-wizard-{port}"  # cookies know no ports

    @property
    def address(self) -> str:
        """What to open; it holds the secret."""
        return f"{self.public_url}/?token={self.token}"

    async def on_startup(self, app: web.Application) -> None:
        """Not textual-serve's banner: the address is told once it answers."""

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(self._guard())
        app.on_response_prepare.append(_secured)
        return app

    def _guard(self) -> Callable[..., Awaitable[web.StreamResponse]]:
        @web.middleware
        async def guard(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            given = request.query.get("token", "")
            if not _is_own(request) or not self._knows(given or request.cookies.get(self.cookie, "")):
                return web.Response(status=403, text="open the address that `advisor wizard --web` printed\n")
            if given and request.path == "/":
                return self._let_in(request)
            return await handler(request)

        return guard

    def _knows(self, token: str) -> bool:
        """In constant time, so that nobody finds it letter by letter."""
        return secrets.compare_digest(token.encode("utf-8", "replace"), self.token.encode())

    def _let_in(self, request: web.Request) -> web.Response:
        """The cookie, and on to an address without the token: it shall stand in no history."""
        clean = request.rel_url.without_query_params("token")
        answer = web.Response(status=302, headers={"Location": str(clean)})
        answer.set_cookie(self.cookie, self.token, httponly=True, samesite="Strict", path="/")
        return answer


def _is_own(request: web.Request) -> bool:
    """Asked by the number and not by a name, and from no other page."""
    origin = request.headers.get("Origin")
    by_number = request.host.partition(":")[0] == HOST
    return by_number and (origin is None or origin == f"http://{request.host}")


async def _secured(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def serve(command: str, port: int, tell: Callable[[str], None]) -> None:
    """Serve until Ctrl+C. `command` runs once for each page that is opened; `tell` gets the address to open.

    Raises UsageError for a taken port.
    """
    server = TokenServer(command, port)
    app = server._make_app()  # noqa: SLF001 - as Server.serve does, whose log would print the token
    try:
        web.run_app(app, host=HOST, port=port, print=lambda *_: tell(server.address), access_log=None)
    except OSError as error:
        raise UsageError(
            f"port {port} of {HOST} cannot be used: {error.strerror}", "--port N for another one"
        ) from None
