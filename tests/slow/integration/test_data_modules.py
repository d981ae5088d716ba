"""Every data module from its files to all metrics, with a model of prototypes and one that trains on two views."""

import csv
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from protometry.datamodules import load_datamodule
from protometry.datamodules.sketch_birds import SketchBirds
from protometry.metrics.suite import resolve
from protometry.scripts import evaluate
from tests.exports import export
from tests.photo_trees import make_cars, write_attributes
from tests.tiny_runs import fit, run_evaluation

MODELS = {  # two epochs each; the second starts with a projection, or trains everything
    "ProtoPNet": ["{warm: null, joint: {epochs: 1}, last: {epochs: 1}, joint2: null, last2: null}"],
    "PIPNet": [
        "{pretrain: {epochs: 1}, head: null, partial: null, full: {epochs: 1}, full_from_30: null, full_from_60: null}",
        "--model.score_threshold=0",
    ],
}


def birds(layout, **options):
    """Four birds as another data set, so that there is something to see in every photo."""
    numbers = {"num_birds": 4, "image_size": 32, "train_size": 24, "val_size": 8, "test_size": 8}
    return lambda root: export(layout, SketchBirds("tiny", **(numbers | options)), root)


def cars(root):
    """Noise for photos."""
    make_cars(root, names=("AM General Hummer", "Audi S4", "BMW Z4", "Ram C/V Van"))
    for number, path in enumerate(sorted(root.rglob("*.jpg"))):
        noise = np.random.default_rng(number).integers(0, 256, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(noise).save(path)


def folders(root):
    """Class folders of birds, and a table of attributes next to them."""
    birds("awa2")(root / "birds")
    shutil.move(root / "birds/Animals_with_Attributes2/JPEGImages", root / "photos")
    names = sorted(path.name for path in (root / "photos").iterdir())
    write_attributes(root / "table.csv", {name: [i % 2, i // 2, 1 - i % 2, 1] for i, name in enumerate(names)}, "abcd")


# name -> writes the files, the data module, and arguments in which ROOT stands for the folder of the files
DATA = {
    "AwA2": (birds("awa2"), "AwA2", ["--model.task=multilabel"]),
    "AwA2 single": (birds("awa2"), "AwA2", ["--data.task=single"]),
    "Cars196": (cars, "Cars196", []),
    "Cars196 cropped": (cars, "Cars196", ["--data.crop=box"]),
    "Cub200": (birds("cub"), "Cub200", ["--data.concept_selection=all"]),
    "Cub200 official": (birds("cub"), "Cub200", ["--data.scheme=official", "--data.concept_selection=all"]),
    "FunnyBirds": (birds("funnybirds"), "FunnyBirds", []),
    "ImageFolder": (folders, "ImageFolder", ["--data.root=ROOT/photos"]),
    "ImageFolder attributes": (
        *(folders, "ImageFolder"),
        ["--data.root=ROOT/photos", "--data.attribute_table=ROOT/table.csv", "--model.task=multilabel"],
    ),
    "Nico": (birds("nico", contexts=4, context_correlation=0.5, train_size=48), "Nico", []),
    "Nico cv70": (birds("nico", contexts=4), "Nico", ["--data.scheme=cv70"]),
}
TWO_VIEWS = ("AwA2", "Cub200", "Nico")  # which know nothing of labels, folds and boxes
# where the box is the whole photo and there is no mask, nothing lies outside the object
UNDEFINED = {
    "Cars196 cropped": [
        "alignment/on_object",
        *(f"localisation/{name}" for name in ("energy", "iou", "pointing_game")),
    ],
}


def trained(name, model, folder, root):
    """A run of the model on the data."""
    write, kind, options = DATA[name]
    write(root)
    options = [f"--data.root={root}", *(option.replace("ROOT", str(root)) for option in options)]
    phases, *others = MODELS[model]
    args = ["--data.image_size=32", "--data.batch_size=16", f"--model.phases={phases}", *others, *options]
    fit(folder, *args, model=model, data=kind)
    return folder


def keep_out(folder):
    """Move a photo of the run's ``split.json`` from test to validation; returns the test ids that are left."""
    record = json.loads((folder / "split.json").read_text())
    record["val"][0].append(record["test"].pop())
    (folder / "split.json").write_text(json.dumps(record))
    return set(record["test"])


PAIRS = [(name, model) for name in DATA for model in MODELS if model == "ProtoPNet" or name in TWO_VIEWS]


@pytest.mark.parametrize(("name", "model"), PAIRS)
def test_from_files_to_metrics(name, model, tmp_path):
    folder = trained(name, model, tmp_path / "run", tmp_path / "files")
    left = keep_out(folder)
    run_evaluation(folder, "--suite", "all")
    with (folder / "evaluation/images.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["sample_id"] for row in rows} == left
    evaluate.main(["predict", "--ckpt_path", str(folder / "checkpoints/last.ckpt"), "--trainer.accelerator=cpu"])
    with (folder / "predictions.csv").open(newline="") as file:
        predicted = list(csv.DictReader(file))
    assert [list(row.values())[:5] for row in predicted] == [list(row.values())[:5] for row in rows]
    for row in rows:
        assert row["prediction"].count("|") == row["probability"].count("|")
        assert float(row["correct"]) == float(row["general/accuracy"]) == (row["prediction"] == row["label"])
    result = json.loads((folder / "evaluation/metrics.json").read_text())
    assert {*result["metrics"], *result["skipped"]} == set(resolve(["all"]))
    assert not result["metrics"].keys() & result["skipped"].keys()
    undefined = [key for key, entry in result["metrics"].items() if not isinstance(entry["value"], float)]
    # such a model may be right on no class, on a single one, or on no bird of a half
    few = r"alignment/(consistency|parts_covered)|" if name.startswith("Cub200") else ""  # of no class five images
    right_classes = re.compile(
        few + r"concepts/cgim[23]_\w+|funnybirds/(ts|contrastivity|overall|completeness_heldout)"
    )
    assert sorted(key for key in undefined if not right_classes.fullmatch(key)) == UNDEFINED.get(name, [])
    assert all(result["skipped"].values())
    data = load_datamodule(folder / "checkpoints/last.ckpt")
    assert result["protocol"]["data"]["fingerprint"] == data.fingerprint
    assert "auto" not in result["protocol"]["data"].values()
