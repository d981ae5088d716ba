"""Download of official archives into a folder that does not exist yet, all or nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CHUNK = 1 << 20


@dataclass(frozen=True)
class Archive:
    """A published tar file.

    Args:
        url: where it is.
        md5: its checksum.
        size: bytes, for messages.
    """

    url: str
    md5: str
    size: int

    @property
    def name(self) -> str:
        """File name of the archive."""
        return self.url.rsplit("/", 1)[-1]


def is_free(root: Path) -> bool:
    """Whether ``root`` is missing or an empty folder."""
    return not root.exists() or (root.is_dir() and not any(root.iterdir()))


def download(archives: Sequence[Archive], root: Path) -> None:
    """Fetch and unpack archives so that ``root`` appears complete or not at all.

    Everything happens in a temporary folder beside ``root`` (``*.part``, checksum, extraction with member paths
    checked) that becomes ``root`` in one rename.

    Args:
        archives: what to fetch; their contents end up side by side in ``root``.
        root: a folder that is missing or empty.

    Raises:
        ValueError: if ``root`` has content, a checksum is wrong, or an archive wants to write outside.
        OSError: if a server cannot be reached.
    """
    if not is_free(root):
        raise ValueError(f"Expected argument `root` to be missing or empty for a download, but {root} has content.")
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{root.name}.", dir=root.parent) as temporary:
        unpacked = Path(temporary) / "unpacked"
        for archive in archives:
            file = _fetch(archive, Path(temporary))
            try:
                with tarfile.open(file) as tar:
                    tar.extractall(unpacked, filter="data")
            except tarfile.TarError as error:
                raise ValueError(f"Expected {archive.url} to be a sound tar file, but got: {error}.") from error
            file.unlink()
        os.replace(unpacked, root)


def _fetch(archive: Archive, folder: Path) -> Path:
    part = folder / f"{archive.name}.part"
    request = urllib.request.Request(archive.url, headers={"User-Agent": "protometry"})
    with urllib.request.urlopen(request) as response, part.open("wb") as target:
        shutil.copyfileobj(response, target, CHUNK)
    with part.open("rb") as file:
        digest = hashlib.file_digest(file, "md5").hexdigest()
    if digest != archive.md5:
        raise ValueError(
            f"Expected {archive.url} to have md5 {archive.md5}, but got {digest} ({part.stat().st_size} of "
            f"{archive.size} bytes). Try again, or download it by hand."
        )
    return part.rename(folder / archive.name)
