"""Models on the Hugging Face hub, ``hf://owner/name``, fetched once into the cache of its library."""

from __future__ import annotations

import re
from pathlib import Path

from protometry.run_folder.command_line.first_look import HUB, MODEL_FILE
from protometry.run_folder.command_line.messages import requires
from protometry.run_folder.command_line.user_path import user_path
from protometry.run_folder.model_folder import CARD, EMBEDDINGS, PHOTOS, WEIGHTS

_ADDRESS = re.compile(r"hf:/{1,2}([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?/?")  # pathlib makes one slash of two
FILES = [MODEL_FILE, WEIGHTS, EMBEDDINGS, f"{PHOTOS}/*.png", CARD]  # all that a model consists of; no code
EXTRA = requires("hub", "the library of the hub")


def repository_of(address: str | Path) -> tuple[str, str | None]:
    """Owner and name of a model on the hub, and a revision if the address names one.

    Raises:
        ValueError: if it is no such address.

    Example:
        >>> repository_of("hf://birds/quickstart"), repository_of("hf://birds/quickstart@v1")
        (('birds/quickstart', None), ('birds/quickstart', 'v1'))
    """
    found = _ADDRESS.fullmatch(str(address))
    if not found:
        raise ValueError(f"Expected an address such as hf://owner/name or hf://owner/name@revision, but got {address}.")
    return found[1], found[2]


def model_path(path: str | Path) -> Path:
    """The place of a model on this machine, after a download if it is on the hub.

    Raises:
        FileNotFoundError: if the hub has no such model, or cannot be reached and nothing is cached.
        ValueError: if the address is malformed, or the library of the hub is not installed.
    """
    if not str(path).startswith(HUB):
        return user_path(path)
    name, revision = repository_of(path)
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ValueError(EXTRA) from error
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=FILES))
    except Exception as error:  # of one of two HTTP libraries, by the version of the hub's
        reason = " ".join(str(error).split())
        raise FileNotFoundError(f"Expected a model at hf://{name}, but it could not be fetched: {reason}") from error
    if not (folder / MODEL_FILE).is_file():
        raise FileNotFoundError(f"Expected hf://{name} to be a model of `protometry push`, but it has no {MODEL_FILE}.")
    return folder
