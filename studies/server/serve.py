"""Serve a study from this machine."""

from __future__ import annotations

from pathlib import Path

from protometry.run_folder.command_line.serving import listening, server_of, until_ended
from protometry.studies.bundle import load_bundle
from protometry.studies.server.app import make_app
from protometry.studies.store import open_store

CONNECTIONS = 500  # at once


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
    bundle = load_bundle(folder)
    if unfilled := bundle.placeholders():
        raise ValueError(
            f"{unfilled}: fill them in before the study starts. Until then, try it with `protometry studies simulate "
            f"{folder}`."
        )
    database = database or folder / "answers.sqlite"
    with open_store(database, bundle) as store, listening(host, port) as listener:
        name = f"[{host}]" if ":" in host else host
        hosts = [host, name, "127.0.0.1", "localhost", *([public_host] if public_host else [])]
        print(f"{bundle.study.title}: http://{name}:{listener.getsockname()[1]}/ (answers in {database})", flush=True)
        with until_ended():
            server_of(make_app(bundle, store, hosts), CONNECTIONS).run([listener])
    return f"Ended. The answers are in {database}"
