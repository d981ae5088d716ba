"""A trained model on the Hugging Face hub: ``protometry push runs/quickstart hf://owner/name``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from protometry.evaluation.export.model_card import ADDRESS
from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.first_look import MODEL_FILE, is_model_folder
from protometry.run_folder.command_line.parser import StrictParser
from protometry.run_folder.command_line.user_path import user_path
from protometry.run_folder.hub import EXTRA, repository_of
from protometry.run_folder.model_folder import CARD, REMEDY, read_description


def push(folder: Path, address: str, private: bool = False) -> str:
    """Upload the folder of an exported model with its card in one commit; the repository is made if there is none.

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
    contents[CARD] = files[CARD].read_text("utf-8").replace(ADDRESS, f"hf://{name}").encode()
    operations = [CommitOperationAdd(path, content) for path, content in contents.items()]
    hub = HfApi(library_name="protometry")
    try:
        hub.create_repo(name, private=private, exist_ok=True)
        there = set(hub.list_repo_files(name)) - {".gitattributes", CARD}
        if not there or MODEL_FILE in there:
            done = hub.create_commit(name, operations, commit_message="Upload a model of Protometry")
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
    config = parser.parse_args(args)
    from protometry.evaluation.__main__ import main as export

    repository_of(config.address)
    with tempfile.TemporaryDirectory() as made:
        folder = user_path(config.model)
        if not is_model_folder(folder):
            folder = Path(made) / "model"
            export([config.model, "--out", str(folder)])
        print(f"uploaded: {push(folder, config.address, config.private)}")


if __name__ == "__main__":
    from_shell(main)
