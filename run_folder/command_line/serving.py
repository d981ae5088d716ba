"""HTTP servers that strangers reach: deadlines, a limit of connections, and bodies of a bounded size."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import HANDLED_SIGNALS

from protometry.run_folder.command_line.stop_signals import StopSignal, handled_by

MAX_PORT = 65535
_AT_ONCE = 32  # connections that are accepted before those above the limit are ended


class Punctual(H11Protocol):
    """HTTP/1.1 that ends connections whose request, or the reading of its answer, takes too long.

    Connections above ``most`` are ended at once.
    """

    most: ClassVar[int]
    request_seconds: ClassVar[float]
    answer_seconds: ClassVar[float]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.request_seconds, self._look, self.request_seconds)
        if len(self.connections) > self.most:
            transport.abort()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._deadline.cancel()
        self._deadline = self.loop.call_later(self.request_seconds, self._look, self.request_seconds)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._deadline.cancel()
        super().connection_lost(exc)

    def _look(self, waited: float) -> None:
        arrived = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if arrived and waited < self.answer_seconds:
            rest = self.answer_seconds - waited
            self._deadline = self.loop.call_later(rest, self._look, self.answer_seconds)
        else:
            self.transport.abort()


def server_of(
    app: ASGIApp, connections: int, request_seconds: float = 20, answer_seconds: float = 120, end_seconds: int = 5
) -> uvicorn.Server:
    """A server of an application that prints errors of the application, and nothing of what strangers send or drop.

    Args:
        app: the application.
        connections: at once; at most half of the files that the process may open.
        request_seconds: in which a request has to arrive as a whole.
        answer_seconds: from its start, in which its answer has to be taken.
        end_seconds: for running requests, once the server is told to end.
    """

    class Limited(Punctual):
        most = min(connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)

    Limited.request_seconds, Limited.answer_seconds = request_seconds, answer_seconds

    async def quiet(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnect):  # with a body that has not arrived
            await app(scope, receive, send)

    config = uvicorn.Config(
        quiet, http=Limited, ws="none", log_level="error", access_log=False, server_header=False,
        timeout_graceful_shutdown=end_seconds, backlog=_AT_ONCE,
    )  # fmt: skip
    return uvicorn.Server(config)


@contextmanager
def until_ended() -> Iterator[None]:
    """Go on after the block, in which a server runs, on any signal that ends a command."""

    def end(number: int, *_: object) -> None:
        if number not in HANDLED_SIGNALS:  # which the server turns into an orderly end, and sends again
            signal.raise_signal(signal.SIGTERM)
            return
        raise StopSignal(number)

    with suppress(StopSignal), handled_by(end):
        yield


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
        raise ValueError(
            f"Expected a free `port` at an address of this machine, but {host}, port {port}: {error.strerror}. Choose "
            "another `port` or `host`."
        ) from None
    return listener


async def body_of(request: Request, most: int) -> bytes:
    """The body of a request.

    Raises:
        HTTPException: 413 if it has more than ``most`` bytes.
    """
    return b"".join([chunk async for chunk in parts_of_body(request, most)])


async def parts_of_body(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    """The body of a request as it arrives.

    Raises:
        HTTPException: 413 if it has, or announces, more than ``most`` bytes.
    """
    announced = request.headers.get("content-length", "0")
    length = int(announced) if announced.isdecimal() else 0
    if length <= most:
        length = 0
        async for chunk in request.stream():
            length += len(chunk)
            if length > most:
                break
            yield chunk
    if length > most:
        raise HTTPException(413, f"Expected a body of at most {most / 1e6:g} MB.")
