"""Serve a study from this machine."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from protometry.studies.bundle import load_bundle
from protometry.studies.server.app import make_app
from protometry.studies.store import open_store

REQUEST_SECONDS = 20  # in which a request has to arrive as a whole
ANSWER_SECONDS = 120  # in which its answer has to be taken
MAX_PORT = 65535


class Punctual(H11Protocol):
    """HTTP/1.1 that ends connections whose request, or the reading of its answer, takes too long."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._look, REQUEST_SECONDS)

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


def command(
    folder: Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    database: Path | None = None,
    public_host: str | None = None,
) -> str:
    """Serve a study until the process is ended; started again, it continues where it was.

    Args:
        folder: the bundle.
        host: address to listen at; by default, only this machine can reach the study.
        port: to listen at; 0 for any that is free.
        database: of the answers, on a local disk; ``answers.sqlite`` in the bundle if None.
        public_host: name under which participants reach the study through a proxy with HTTPS.

    Raises:
        ValueError: if the bundle is broken or has words of the example that are to be filled in, the database is of
            another study or served already, or the port is in use or no port.
    """
    if not 0 <= port <= MAX_PORT:
        raise ValueError(f"Expected argument `port` to lie between 0 and {MAX_PORT}, but got {port}.")
    bundle = load_bundle(folder)
    if unfilled := bundle.placeholders():
        raise ValueError(
            f"{unfilled}: fill them in before the study starts. Until then, look at the pages with `protometry studies "
            f"single_file {folder} --out {folder}/preview --number 1`, and try them with `protometry studies simulate "
            f"{folder}`."
        )
    database = database or folder / "answers.sqlite"
    with open_store(database, bundle) as store, _listening(host, port) as listening:
        name = f"[{host}]" if ":" in host else host
        hosts = [host, name, "127.0.0.1", "localhost", *([public_host] if public_host else [])]
        print(f"{bundle.study.title}: http://{name}:{listening.getsockname()[1]}/ (answers in {database})", flush=True)
        config = uvicorn.Config(
            make_app(bundle, store, hosts), http=Punctual, ws="none", log_level="warning", server_header=False,
            timeout_graceful_shutdown=5,
        )  # fmt: skip
        with _until_ended():
            uvicorn.Server(config).run([listening])
    return f"Ended. The answers are in {database}"


@contextlib.contextmanager
def _until_ended() -> Iterator[None]:
    """Go on after the block on SIGTERM and Ctrl-C, so that the database is closed."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _listening(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # whoever comes before the application is ready waits
    except OSError as error:
        listener.close()
        raise ValueError(f"Cannot listen at {host}, port {port}: {error.strerror}. Choose another `port`.") from None
    return listener
