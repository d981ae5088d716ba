"""Serve a study from this machine."""

from __future__ import annotations

import socket
from pathlib import Path

import uvicorn

from studies.bundle import load_bundle
from studies.server.app import make_app
from studies.store import open_store


def command(
    folder: Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    database: Path | None = None,
    public_host: str | None = None,
) -> str:
    """Serve a study until the process is ended; started again, it goes on where it was.

    Args:
        folder: the bundle.
        host: address to listen at; by default, only this machine can reach the study.
        port: to listen at.
        database: of the answers, on a local disk; ``answers.sqlite`` in the bundle if None.
        public_host: name under which participants reach the study through a proxy with HTTPS.

    Returns:
        A line for the end.

    Raises:
        ValueError: if the bundle is broken, the database is of another study or served already, or the port is in use.
    """
    bundle = load_bundle(folder)
    database = database or folder / "answers.sqlite"
    with open_store(database, bundle) as store, _listening(host, port) as listening:
        hosts = [host, "127.0.0.1", "localhost", *([public_host] if public_host else [])]
        print(f"{bundle.study.title}: http://{host}:{port}/ (answers in {database})", flush=True)
        config = uvicorn.Config(make_app(bundle, store, hosts), log_level="warning", server_header=False)
        uvicorn.Server(config).run([listening])
    return f"Ended. The answers are in {database}"


def _listening(host: str, port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen()  # whoever comes before the application is ready waits
    except OSError as error:
        found.close()
        raise ValueError(f"Cannot listen at {host}, port {port}: {error.strerror}. Choose another `port`.") from None
    return found
