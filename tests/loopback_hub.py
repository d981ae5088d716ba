"""A Hugging Face hub on this machine, with what its library asks to upload and to fetch the files of models."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "a" * 40


@contextmanager
def loopback_hub() -> Iterator[tuple[str, dict[str, dict[str, bytes]]]]:
    """Its address, and the files of every repository by name, which tests may change."""
    repositories: dict[str, dict[str, bytes]] = {}

    class Hub(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def _answer(self, body: bytes, status: int = 200, **headers: str) -> None:
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _json(self, value: Any, status: int = 200) -> None:
            self._answer(json.dumps(value).encode(), status, content_type="application/json")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.path == "/api/repos/create":
                asked = json.loads(body)
                name = f"{asked['organization']}/{asked['name']}"
                repositories.setdefault(name, {})
                self._json({"url": f"{address}/{name}"})
            elif self.path == "/api/validate-yaml":
                self._json({"errors": [], "warnings": []})
            elif "/preupload/" in self.path:
                files = [
                    {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for file in json.loads(body)["files"]
                ]
                self._json({"files": files})
            else:
                name = "/".join(self.path.split("/")[3:5])
                files = repositories[name]
                entries = [json.loads(line) for line in body.splitlines()]
                for entry in (entry["value"] for entry in entries if entry["key"] == "file"):
                    files[entry["path"]] = base64.b64decode(entry["content"])
                self._json({"commitUrl": f"{address}/{name}/commit/{COMMIT}", "commitOid": COMMIT, "success": True})

        def do_GET(self) -> None:
            asked = self.path.partition("?")[0].replace("/api/spaces/", "/api/models/")
            api, _, path = asked.partition("/api/models/")
            name = "/".join((path or api.strip("/")).split("/")[:2])
            files = repositories.get(name)
            if files is None:
                self._answer(b"", 404, x_error_code="RepoNotFound", x_error_message="Repository not found")
            elif "/tree/" in path:
                hashes = {file: hashlib.sha1(content).hexdigest() for file, content in files.items()}
                self._json(
                    [{"type": "file", "path": f, "size": len(files[f]), "oid": key} for f, key in hashes.items()]
                )
            elif path:
                self._json({"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]})
            else:
                content = files[api.split("/resolve/")[1].partition("/")[2]]
                self._answer(content, etag=f'"{hashlib.sha1(content).hexdigest()}"', x_repo_commit=COMMIT)

        do_HEAD = do_GET  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield address, repositories
    finally:
        server.shutdown()
        server.server_close()
