"""Why a file with weights cannot be read, and what to do, where its first bytes or the unpickler tell."""

from __future__ import annotations

import re
from pathlib import Path
from pickle import UnpicklingError


def why_unreadable(file: Path, error: Exception) -> str:
    """What is wrong with a file that ``torch.load(..., weights_only=True)`` or safetensors cannot read.

    PyTorch's own advice, to read it with ``weights_only=False``, is left out: it would run code in the file.
    """
    with file.open("rb") as content:
        head = content.read(64).lstrip()
    if head.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer in place of the weights; `git lfs pull` in its repository fetches them"
    if head.startswith(b"<"):
        return "it is a web page in place of the weights"
    if not head:
        return "it is empty"
    if isinstance(error, UnpicklingError):
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        return f"it holds objects of {found[1]}, whose code would run" if found else "it is damaged or of another kind"
    reason = str(error).strip().split("\n")[0] or type(error).__name__
    return f"KeyError: {reason}" if isinstance(error, KeyError) else reason  # a key alone says nothing
