"""Ports: whether one is free, and one that is."""

from __future__ import annotations

import socket

from vllm_advisor.errors import UsageError


def choose_port(host: str, wanted: int | None) -> int:
    """`wanted` when nobody listens there, else (None) a free one of the system's choice.

    Raises UsageError when the wanted one is taken. Between here and the child's own bind another process may take it;
    vLLM then stops by itself, and its last words say so.
    """
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        # As vLLM binds (SO_REUSEADDR): a port in TIME_WAIT is free, one that is listened on is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, wanted or 0))
        except OSError as error:
            what = f"port {wanted} on {host}" if wanted else f"an address on {host}"
            raise UsageError(f"{what} cannot be used: {error.strerror}", "choose another one with --port") from error
        return int(probe.getsockname()[1])


def url_of(host: str, port: int) -> str:
    """Where a client on this machine reaches a server that listens on `host`."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{reached}:{port}"


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
