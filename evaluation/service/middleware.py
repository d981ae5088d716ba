"""The middleware of the service, which checks the host and the load, and writes the log; and errors as JSON."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from protometry.run_folder.command_line.messages import on_one_line

LOG = logging.getLogger("protometry.service")
HEALTH = "/healthz"  # answered under any name and however busy the service is
CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}  # of errors that are no refusals
_LONGEST = 100  # letters of a path in the log


class Refusal(HTTPException):
    """An error that the client can mend.

    Args:
        status: of HTTP.
        code: for programs, such as ``not_a_photo``.
        message: for people.
        headers: of the answer.
    """

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(status, message, headers)
        self.code = code


def error_response(request: Request, error: Exception) -> JSONResponse:
    """An error as JSON, ``{"error": {"code": ..., "message": ...}}``; what is unexpected says nothing of its cause."""
    if not isinstance(error, HTTPException):
        text = "The photo could not be explained; the log of the service says why."
        error = Refusal(500, "internal_error", text)
    code = error.code if isinstance(error, Refusal) else CODES.get(error.status_code, "bad_request")
    message = error.detail
    if message == HTTPStatus(error.status_code).phrase:
        message = f"{request.method} {request.url.path} is not offered; /openapi.json lists what is."
    content = {"error": {"code": code, "message": message}}
    return JSONResponse(content, error.status_code, error.headers)


class Middleware:
    """Passes on requests to known hosts, a limited number at once, and logs a line for each.

    Args:
        app: the application.
        names: of its hosts; ``*`` for any.
        most: requests at once; others are answered with 503.
    """

    def __init__(self, app: ASGIApp, names: Collection[str], most: int) -> None:
        self.app, self.names, self.most = app, {name.lower() for name in names}, most
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, size = time.perf_counter(), 0, 0

        async def counted(message: Message) -> None:
            nonlocal status, size
            status, size = message.get("status", status), size + len(message.get("body", b""))
            await send(message)

        request = Request(scope, receive)
        self._running += 1
        try:
            refusal = None if scope["path"] == HEALTH else self._refusal(request)
            answer: Any = error_response(request, refusal) if refusal else self.app
            await answer(scope, receive, counted)
        finally:
            self._running -= 1
            asked = on_one_line(f"{scope['method']} {scope['path']}"[:_LONGEST])
            seconds, client = time.perf_counter() - start, scope["client"] or ("-",)
            LOG.info("%s %s %s %.0f ms %d bytes", client[0], asked, status or "dropped", 1000 * seconds, size)

    def _refusal(self, request: Request) -> Refusal | None:
        try:
            host = urlsplit(f"//{request.headers.get('host', '')}").hostname
        except ValueError:
            host = None
        if "*" not in self.names and host not in self.names:
            known = "Expected the name of a host of this service; `--public_host` adds one."
            return Refusal(421, "unknown_host", known)
        if self._running > self.most:
            busy = f"Expected at most {self.most} requests at once. Try again in a second."
            return Refusal(503, "busy", busy, **{"Retry-After": "1"})
        return None
