"""Files that are written completely or not at all: a kill or a full disk leaves the earlier content, or none."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file such that a kill leaves either the old or the new content.

    Args:
        path: the file; its folder is made if it is not there.
        content: the new content, a text in UTF-8.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_bytes(content if isinstance(content, bytes) else content.encode())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        if error.errno is not None:
            error.filename = str(path)  # a full disk is reported without one
        raise


def write_new(path: Path, data: bytes) -> Path:
    """Write a new file unless it exists with the same content; if the content differs, the new file gets a number.

    Args:
        path: the file; its folder is made if it is not there.
        data: what it is to hold.

    Returns:
        Where it lies.
    """
    target, number = path, 1
    while target.exists():
        if target.read_bytes() == data:
            return target
        number += 1
        target = path.with_name(f"{path.stem}-{number}{path.suffix}")
    write_whole(target, data)
    return target
