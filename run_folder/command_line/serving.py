"""HTTP servers that strangers reach: deadlines, a limit of connections, and bodies of a bounded size."""

from __future__ import annotations

import asyncio
import resource
import socket
from contextlib import suppress
from typing import ClassVar

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 20  # in which a request has to arrive as a whole
ANSWER_SECONDS = 120  # in which its answer has to be taken
MAX_PORT = 65535
_AT_ONCE = 32  # connections that are accepted before those above the limit are ended


class Punctual(H11Protocol):
    """HTTP/1.1 that ends connections whose request, or the reading of its answer, takes too long.

    Connections above ``most`` are ended at once.
    """

    most: ClassVar[int]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._look, REQUEST_SECONDS)
        if len(self.connections) > self.most:
            transport.abort()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._deadline.cancel()
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._look, REQUEST_SECONDS)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._deadline.cancel()
        super().connection_lost(exc)

    def _look(self, waited: float) -> None:
        arrived = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if arrived and waited < ANSWER_SECONDS:
            rest = ANSWER_SECONDS - waited
            self._deadline = self.loop.call_later(rest, self._look, ANSWER_SECONDS)
        else:
            self.transport.abort()


def server_of(app: ASGIApp, connections: int) -> uvicorn.Server:
    """A server of an application that prints errors of the application, and nothing of what strangers send or drop.

    Args:
        app: the application.
        connections: at once; at most half of the files that the process may open.
    """

    class Limited(Punctual):
        most = min(connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)

    async def quiet(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnect):  # with a body that has not arrived
            await app(scope, receive, send)

    config = uvicorn.Config(
        quiet, http=Limited, ws="none", log_level="error", access_log=False, server_header=False,
        timeout_graceful_shutdown=5, backlog=_AT_ONCE,
    )  # fmt: skip
    return uvicorn.Server(config)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; whoever comes before the server is ready waits.

    Raises:
        ValueError: if the port is none, or in use.
    """
    if not 0 <= port <= MAX_PORT:
        raise ValueError(f"Expected argument `port` to lie between 0 and {MAX_PORT}, but got {port}.")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise ValueError(f"Cannot listen at {host}, port {port}: {error.strerror}. Choose another `port`.") from None
    return listener


async def body_of(request: Request, most: int) -> bytes:
    """The body of a request.

    Raises:
        HTTPException: 413 if it has more than ``most`` bytes.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise HTTPException(413, f"Expected a body of at most {most / 1e6:g} MB.")
    return bytes(body)
