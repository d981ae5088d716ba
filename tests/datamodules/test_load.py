"""A data module comes back from the checkpoint of its run, with the split of the run."""

import json
import warnings

import pytest
import torch

from protometry.datamodules import Cub200, ImageFolder, SketchBirds, load_datamodule
from protometry.datamodules.load import warn_of_training_photos
from protometry.run_folder.checkpoint_file import read_checkpoint
from tests.empty_checkpoint import EMPTY
from tests.photo_trees import make_folders


def saved(folder, data, name="checkpoints/last.ckpt", **changes):
    """What a run leaves behind: a checkpoint with the arguments of its data module, and its ``split.json``."""
    stored = {**data.hparams, "_class_path": f"{type(data).__module__}.{type(data).__name__}", **changes}
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(EMPTY | {"datamodule_hyper_parameters": stored}, path)
    if record := data.split_record():
        (folder / "split.json").write_text(json.dumps(record))
    return path


@pytest.fixture
def cub(cub_tree):
    return Cub200(str(cub_tree()), image_size=(24, 32), batch_size=5, fold=2, concept_selection="all")


@pytest.mark.parametrize("name", ["checkpoints/last.ckpt", "last.ckpt"])
def test_arguments_and_split_come_back(cub, tmp_path, name):
    path = saved(tmp_path / "run", cub, name, _instantiator="lightning.pytorch.cli.instantiate_module")
    again = load_datamodule(str(path))
    assert type(again) is Cub200
    assert (again.image_size, again.batch_size, again.fold, again.root) == ((24, 32), 5, 2, cub.root)
    assert (again.split_file, again.split_record()) == (str(tmp_path / "run/split.json"), cub.split_record())
    assert again.dataset("val").sample_ids == cub.dataset("val").sample_ids


def test_the_split_of_the_run_decides_what_is_test(cub, tmp_path):
    path = saved(tmp_path, cub)
    record = cub.split_record()
    moved = record["test"].pop()
    record["val"][2].append(moved)
    (tmp_path / "split.json").write_text(json.dumps(record))
    data = load_datamodule(path)
    assert moved in data.dataset("val").sample_ids
    assert moved not in data.dataset("test").sample_ids


def test_without_a_split_file_the_split_is_made_again(cub, tmp_path):
    path = saved(tmp_path, cub)
    (tmp_path / "split.json").unlink()
    again = load_datamodule(path)
    assert again.split_file is None
    assert again.split_record() == cub.split_record()


def test_a_folder_that_was_renamed_is_the_same_data_set(tmp_path):
    root = make_folders(tmp_path / "birds")
    path = saved(tmp_path / "run", ImageFolder(str(root), image_size=16))
    root.rename(tmp_path / "moved")
    assert load_datamodule(path, root=str(tmp_path / "moved")).dataset_name == "birds"


def test_training_photos_among_other_data_are_warned_of(tmp_path):
    data = ImageFolder(str(make_folders(tmp_path / "birds")), image_size=16)
    path = saved(tmp_path / "run", data)
    stored = read_checkpoint(path)
    trained, held_out = (data.dataset(part).sample_ids for part in ("train", "val"))
    known = f"elsewhere/{trained[0]}"
    with pytest.warns(UserWarning, match=f"1 of {1 + len(held_out)} images .* training photos of the run, .* {known}"):
        warn_of_training_photos(stored, path, [known, *held_out])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_training_photos(stored, path, [*held_out, "1", "new/0.jpg"])


def test_changes_replace_what_was_stored(cub, cub_tree, tmp_path):
    path = saved(tmp_path, cub)
    other = tmp_path / "other.json"
    other.write_text(json.dumps(cub.split_record()))
    again = load_datamodule(path, root=str(cub_tree("moved")), batch_size=7, split_file=str(other))
    assert (again.batch_size, again.split_file) == (7, str(other))
    assert again.split_record() == cub.split_record()
    with pytest.raises(ValueError, match=r"Expected arguments of Cub200, .*`colour`, which it does not have"):
        load_datamodule(path, colour="red")


def test_other_photos_than_those_of_the_run_are_refused(cub, cub_tree, tmp_path):
    path = saved(tmp_path, cub)
    with pytest.raises(ValueError, match=r"when .*split\.json was written, but 8 are gone"):
        load_datamodule(path, root=str(cub_tree("fewer", classes=2))).setup()


def test_a_data_set_that_has_no_split_file(tmp_path):
    birds = SketchBirds("tiny", train_size=20)
    (tmp_path / "split.json").write_text("{}")  # of something else
    assert len(load_datamodule(saved(tmp_path, birds)).dataset("train")) == 20


def test_something_else_than_a_data_module(cub, tmp_path):
    for name, message in (("Cub200Dataset", "to name a ImageDataModule, but it names"), ("gone.Photos", "importable")):
        with pytest.raises(ValueError, match=message):
            load_datamodule(saved(tmp_path, cub, _class_path=f"protometry.datamodules.{name}"))
    with pytest.raises(ValueError, match=r"names 'elsewhere\.Photos', .*`--allow_classes elsewhere`"):
        load_datamodule(saved(tmp_path, cub, _class_path="elsewhere.Photos"))
