"""Download of official archives into a folder that does not exist yet, all or nothing."""

from __future__ import annotations

import errno
import hashlib
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from torch.hub import download_url_to_file

from protometry.run_folder.command_line.user_path import user_path

LARGEST_RATIO = 20  # photos are compressed already; what unpacks to more is not an archive of photos
MOST_MEMBERS = 1_000_000


@dataclass(frozen=True)
class Archive:
    """A published tar or zip file.

    Args:
        url: where it is; zip files end in ``.zip``.
        md5: its checksum, or None if none is published.
        size: bytes; unpacked, it may hold :data:`LARGEST_RATIO` times as many.
    """

    url: str
    md5: str | None
    size: int

    @property
    def name(self) -> str:
        """File name of the archive."""
        return self.url.rsplit("/", 1)[-1]


def is_free(root: Path) -> bool:
    """Whether ``root`` is missing or an empty folder."""
    root = user_path(root)
    return not root.exists() or (root.is_dir() and not any(root.iterdir()))


def download(archives: Sequence[Archive], root: Path, check: Callable[[Path], None] | None = None) -> None:
    """Fetch and unpack archives so that ``root`` appears complete or not at all.

    Everything happens in a temporary folder next to ``root`` (checksum, extraction with member paths checked) that
    becomes ``root`` in one rename. Of several processes that fetch into one ``root``, as on the nodes of a cluster, the
    first one's copy stays and the others are thrown away.

    Args:
        archives: what to fetch; their contents end up side by side in ``root``.
        root: a folder that is missing or empty, or a link to one.
        check: raises if the unpacked folder is not what was promised; the only check of archives without checksum. It
            also looks at a ``root`` that another process has filled meanwhile.

    Raises:
        ValueError: if ``root`` has content, a checksum is wrong, or an archive wants to write outside or unpacks to
            more than its size and number of members may be.
        OSError: if a server cannot be reached.
    """
    if not is_free(root):
        raise ValueError(f"Expected argument `root` to be missing or empty for a download, but {root} has content.")
    root = user_path(root).resolve()  # a link stays, what it leads to is filled
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{root.name}.", dir=root.parent) as temporary:
        unpacked = Path(temporary) / "unpacked"
        for archive in archives:
            file = Path(temporary) / archive.name
            download_url_to_file(archive.url, str(file))
            _check_sum(archive, file)
            _unpack(archive, file, unpacked)
            file.unlink()
        if check is not None:
            check(unpacked)
        try:
            os.replace(unpacked, root)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if check is not None:  # another process was faster, and its rename brought all or nothing
                check(root)


def _check_sum(archive: Archive, file: Path) -> None:
    if archive.md5 is None:
        return
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "md5").hexdigest()
    if digest != archive.md5:
        raise ValueError(
            f"Expected {archive.url} to have md5 {archive.md5}, but got {digest} ({file.stat().st_size} of "
            f"{archive.size} bytes). Try again, or download it by hand."
        )


def _unpack(archive: Archive, file: Path, target: Path) -> None:
    kind = "zip" if archive.name.endswith(".zip") else "tar"
    unpacked = _Unpacked(archive)
    try:
        if kind == "tar":
            with tarfile.open(file) as tar:
                tar.extractall(target, filter=unpacked.filter)
            return
        with zipfile.ZipFile(file) as archived:
            for info in archived.infolist():
                unpacked.add(info.file_size)  # no more is written, whatever the data holds
                member = PureWindowsPath(info.filename)  # splits at both kinds of slashes
                if member.anchor or ".." in member.parts:
                    raise zipfile.BadZipFile(f"member {info.filename!r} would be extracted outside the folder")
            archived.extractall(target)  # links are written as plain files
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"Expected {archive.url} to be a sound {kind} file, but got: {error}.") from error


class _Unpacked:
    """What an archive holds so far; stops one that unpacks to more than it should."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.members = self.bytes = 0

    def add(self, size: int) -> None:
        """Count one member."""
        self.members += 1
        self.bytes += size
        limit = LARGEST_RATIO * self.archive.size
        if self.members > MOST_MEMBERS or self.bytes > limit:
            raise ValueError(
                f"Expected {self.archive.url} to unpack to at most {MOST_MEMBERS} members and {limit / 1e9:.3g} GB, "
                "but it holds more. Get the data by hand."
            )

    def filter(self, member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        """Count a member of a tar file, before it is written, and refuse one that would lie outside."""
        self.add(member.size)
        return tarfile.data_filter(member, path)
