"""A trained model on the Hugging Face hub: ``protometry push runs/quickstart hf://owner/name``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protometry.evaluation.export.model_card import ADDRESS
from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.first_look import MODEL_FILE, is_model_folder
from protometry.run_folder.command_line.parser import StrictParser
from protometry.run_folder.command_line.user_path import user_path
from protometry.run_folder.hub import EXTRA, repository_of
from protometry.run_folder.model_folder import CARD, REMEDY, read_description

MODEL = "model"  # the folder of the model in a Space
APP = f"""from protometry.evaluation.app.explorer import open_explorer
from protometry.evaluation.app.interface import launch

launch(open_explorer("{MODEL}"))
"""
SPACE = """---
title: {name}
sdk: gradio
app_file: app.py
---

Try an interpretable image model: drop a photo, switch units off or correct concepts, and see what it decides then, and
why. `{model}/` is [a folder of `protometry export`]({model}/README.md).
"""


def space_files(files: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The files of a Space of the Hugging Face hub in which a model can be tried.

    Args:
        files: of the folder of an exported model, by their paths in it.
        name: owner and name of the Space.
    """
    card = SPACE.format(name=name.rpartition("/")[2], model=MODEL)
    own = {"app.py": APP, "requirements.txt": "protometry[app]\n", "README.md": card}
    return {f"{MODEL}/{path}": content for path, content in files.items()} | {
        path: text.encode() for path, text in own.items()
    }


def push(folder: Path, address: str, private: bool = False, space: bool = False) -> str:
    """Upload the folder of an exported model with its card in one commit; the repository is made if there is none.

    With ``space``, into a Space, with the app in which it can be tried.

    Returns:
        The address of the commit.

    Raises:
        FileExistsError: if there is a repository of that name that holds something else.
        OSError: if the hub refuses, or cannot be reached.
        ValueError: if the folder or the address is malformed, or the library of the hub is not installed.
    """
    name, revision = repository_of(address)
    read_description(folder)  # refuses what is none
    if revision:
        raise ValueError(f"Expected an address without a revision, but got {address}.")
    try:
        from huggingface_hub import CommitOperationAdd, HfApi
    except ImportError as error:
        raise ValueError(EXTRA) from error
    files = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*")) if file.is_file()}
    contents: dict[str, Any] = {path: str(file) for path, file in files.items()}
    if CARD not in files:
        raise ValueError(f"Expected {folder} to hold the model card {CARD}, but it does not. {REMEDY}")
    contents[CARD] = files[CARD].read_text("utf-8").replace(ADDRESS, MODEL if space else f"hf://{name}").encode()
    if space:
        contents = space_files(contents, name)
    operations = [CommitOperationAdd(path, content) for path, content in contents.items()]
    hub = HfApi(library_name="protometry")
    kind, ours = ("space", f"{MODEL}/{MODEL_FILE}") if space else ("model", MODEL_FILE)
    try:
        hub.create_repo(name, private=private, exist_ok=True, repo_type=kind, space_sdk="gradio" if space else None)
        there = set(hub.list_repo_files(name, repo_type=kind)) - {".gitattributes", CARD}
        if not there or ours in there:
            said = "Upload a model of Protometry"
            done = hub.create_commit(name, operations, commit_message=said, repo_type=kind)
            return str(done.commit_url)
    except Exception as error:  # of one of two HTTP libraries, by the version of the hub's
        raise OSError(f"Could not upload {folder} to hf://{name}: {' '.join(str(error).split())}") from error
    raise FileExistsError(f"Expected hf://{name} to be new or a model of ours, but it holds {sorted(there)[0]}.")


def main(args: list[str] | None = None) -> None:
    """Upload a model."""
    parser = StrictParser(prog="protometry push", description="Upload a trained model to the Hugging Face hub.")
    parser.add_argument("model", type=str, help="a folder of `protometry export`, a checkpoint, or a run folder")
    parser.add_argument("address", type=str, help="hf://owner/name; log in first, with `hf auth login`")
    parser.add_argument("--private", type=bool, default=False, help="whether a new repository is private")
    parser.add_argument("--space", type=bool, default=False, help="into a Space in which people can try the model")
    config = parser.parse_args(args)
    from protometry.evaluation.__main__ import main as export

    repository_of(config.address)
    with tempfile.TemporaryDirectory() as made:
        folder = user_path(config.model)
        if not is_model_folder(folder):
            folder = Path(made) / "model"
            export([config.model, "--out", str(folder)])
        print(f"uploaded: {push(folder, config.address, config.private, config.space)}")


if __name__ == "__main__":
    from_shell(main)
