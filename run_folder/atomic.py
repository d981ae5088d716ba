"""Files that are written as a whole: a kill or a full disk leaves the earlier content, or none."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that a kill leaves as it was or as it is to be.

    Args:
        path: the file; its folder is made if it is not there.
        content: what it is to hold, a text in UTF-8.
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
    """Write a new file, or find it there already; where another content lies, the new file gets a number.

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
