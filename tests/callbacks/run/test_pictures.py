"""Pictures and tables of prototypes after a projection, and what is shown of an image while a model is trained."""

import csv
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from lightning import LightningModule
from lightning.pytorch.loggers import WandbLogger
from PIL import Image

from protometry.callbacks.run import pictures
from protometry.callbacks.run.pictures import (
    ExplanationMedia,
    PrototypeMedia,
    by_place,
    evidence,
    prototype_records,
    sheet_of_prototypes,
)
from protometry.datamodules import SketchBirds
from protometry.datamodules.sample import Capabilities, ClassTables
from protometry.explanations import Upsample, choose_explainer
from protometry.explanations.decision import decide
from protometry.lightning_modules.contract import SourceTable, UnitTable, empty_sources
from protometry.lightning_modules.phases import Phase, PhasePlan
from tests.lightning_modules.registry import MODELS

COLOURS = {"a": (1.0, 0.0, 0.0), "b": (0.0, 1.0, 0.0), "c": (0.0, 0.0, 1.0)}
PLAN = PhasePlan(
    (
        Phase("warm", 2, {"head": 0.1}, {}),
        Phase("push/joint", 2, {"head": 0.1}, {}),
        Phase("last", 1, {"head": 0.1}, {}, bn="eval", on_enter=("project", "fit_head")),
    )
)


class Images:
    """Plain 16 x 16 images, one colour each."""

    sample_ids = ("a", "b", "c")

    def __init__(self):
        self.asked = []

    def __getitem__(self, index):
        self.asked.append(index)
        image = torch.tensor(COLOURS[self.sample_ids[index]]).view(3, 1, 1).repeat(1, 16, 16)
        image[:, :, 8:] = 1  # white on the right, beyond what a cell of the first column sees
        return {"image": image, "object_mask": torch.arange(16)[:, None].expand(16, 16) < 5}


def units(weight=True):
    """Five units of two classes: 3 repeats the patch of 0, 2 has no source, 4 is not active."""
    source = SourceTable(
        sample_key=torch.tensor([7, 9, -1, 7, 9]),
        sample_id=["a", "c", "", "a", "c"],
        row=torch.tensor([1, 0, -1, 1, 3]),
        col=torch.tensor([2, 0, -1, 2, 3]),
        label=torch.tensor([1, 0, -1, 1, 0]),
        distance=torch.tensor([0.5, 0.25, torch.inf, 0.75, 0.0]),
        box=torch.tensor([[8, 4, 11, 7], [0, 0, 3, 3], [-1] * 4, [8, 4, 11, 7], [12, 12, 15, 15]]),
    )
    return UnitTable(
        kind="prototype",
        active=torch.tensor([True, True, True, True, False]),
        owner=torch.ones(5, 2, dtype=torch.bool),
        pool="max",
        weight=torch.arange(10.0).view(2, 5).requires_grad_() if weight else None,
        source=source,
    )


class Recorder(WandbLogger):
    def __init__(self):
        self.sent = []

    def log_image(self, key, images, step, caption):
        self.sent.append((key, images, step, caption))


class Model(LightningModule):
    def __init__(self, table):
        super().__init__()
        self.table = table
        self.train()

    def units(self):
        return self.table

    def phases(self):
        return PLAN


class Corner(Upsample):
    """Relevance in pixels 4 to 7 of row 2, for every unit of a model in evaluation mode."""

    def supports(self, model):
        assert not model.training  # some are shown an image to find out

    def attribute(self, model, images, targets, **more):
        assert not model.training
        maps = torch.zeros(len(images), targets.ids.shape[1], 16, 16)
        maps[..., 2, 4:8] = 1.0
        return maps


def draw(run, table, action="project", **options):
    model = Model(table)
    PrototypeMedia(explainer=Corner(), **options).on_action_end(run, model, action, {})
    assert model.training


def trainer(folder, epoch=1, is_global_zero=True, masks="no masks"):
    images = Images()
    datamodule = SimpleNamespace(
        class_names=["crow, black", "jay"],
        tables=ClassTables(part_names=["eye"]),
        shown=lambda split: {"projection": images}[split],
        images=images,
        capabilities=lambda split: Capabilities(object_mask=masks),
    )
    return SimpleNamespace(
        default_root_dir=str(folder),
        datamodule=datamodule,
        loggers=[Recorder()],
        global_step=12,
        current_epoch=epoch,
        is_global_zero=is_global_zero,
    )


def test_records_are_ordered_by_class_and_leave_out_units_without_source():
    records = prototype_records(Model(units()), ["crow", "jay"])
    assert [record.unit for record in records] == [1, 0, 3]
    crow, jay, twin = records
    assert (crow.class_name, crow.sample_id, crow.cell, crow.box) == ("crow", "c", (0, 0), (0, 0, 3, 3))
    # weight[class of the source, unit] of 0..9 in two rows of five: [0, 1] -> 1, [1, 0] -> 5, [1, 3] -> 8
    assert [record.weight for record in records] == [1.0, 5.0, 8.0]
    assert (jay.duplicate_of, twin.duplicate_of) == (None, 0)
    assert twin.figures == "distance 0.75, weight 8"
    assert prototype_records(Model(units(weight=False)), ["crow", "jay"])[0].figures == "distance 0.25"


def test_of_multilabel_data_the_class_is_the_first_label_that_owns_the_prototype():
    """The class of a source image, here 1 and 0, is then none of the labels."""
    owner = torch.tensor([[False, False, True], [False, True, True], *[[True] * 3] * 3])
    table = replace(units(weight=False), owner=owner)
    records = prototype_records(Model(table), ["beak", "eye", "tail"], multilabel=True)
    assert [(record.unit, record.class_name) for record in records] == [(3, "beak"), (1, "eye"), (0, "tail")]


@pytest.mark.parametrize("source", [None, empty_sources(5)])
def test_nothing_is_drawn_before_a_projection(tmp_path, source):
    table = units()
    table = UnitTable("prototype", table.active, table.owner, "max", source=source)
    draw(trainer(tmp_path), table)
    assert not list(tmp_path.iterdir())


def test_projection_leaves_a_sheet_a_table_and_captioned_tiles(tmp_path):
    run = trainer(tmp_path, masks=True)
    draw(run, units())
    folder = tmp_path / "prototypes"
    assert sorted(file.name for file in folder.iterdir()) == ["warm-epoch01.csv", "warm-epoch01.png"]
    with (folder / "warm-epoch01.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["unit"] for row in rows] == ["1", "0", "3"]
    assert rows[2] == {
        "unit": "3", "class": "jay", "sample_id": "a", "row": "1", "col": "2", "x0": "8", "y0": "4", "x1": "11",
        "y1": "7", "distance": "0.75", "weight": "8.0", "duplicate_of": "0", "on_object": "0.25",
    }  # fmt: skip
    assert rows[0]["class"] == "crow, black"
    assert (rows[0]["duplicate_of"], rows[0]["on_object"]) == ("", "1.0")
    ((key, tiles, step, captions),) = run.loggers[0].sent
    assert (key, step) == ("media/prototypes", 12)
    assert captions[:2] == [
        "prototype 1 · crow, black · distance 0.25, weight 1",
        "prototype 0 · jay · distance 0.5, weight 5",
    ]
    # the crops, on the right of the tiles, are 6 pixels wide about columns 4 to 7: 3 to 8, and white from 8 on
    edges = [(tile.getpixel((tile.width - 112, 0)), tile.getpixel((tile.width - 1, 0))) for tile in tiles]
    assert edges == [((0, 0, 255), (255, 255, 255)), *[((255, 0, 0), (255, 255, 255))] * 2]
    assert run.datamodule.images.asked == [0, 2]  # every image once, and only those that are needed
    contact = Image.open(folder / "warm-epoch01.png")
    assert contact.size == sheet_of_prototypes(prototype_records(Model(units()), ["crow, black", "jay"]), tiles).size


def test_classes_are_rows():
    records = prototype_records(Model(units()), ["crow", "jay"])
    tiles = [Image.new("RGB", (40, 10), colour) for colour in ("#0000ff", "#ff0000", "#00ff00")]
    contact = sheet_of_prototypes(records, tiles)
    # two columns of 40 + 8; titles of 24 and tiles of 10 + 4 pixels in turn
    assert contact.size == (96, 2 * (24 + 14))
    assert [contact.getpixel(place) for place in ((4, 24), (4, 62), (52, 62))] == [
        (0, 0, 255),
        (255, 0, 0),
        (0, 255, 0),
    ]
    assert contact.getpixel((52, 24)) == (255, 255, 255)


def test_phase_of_the_epoch_names_the_files(tmp_path):
    draw(trainer(tmp_path, epoch=2), units())
    assert (tmp_path / "prototypes" / "push-joint-epoch02.png").is_file()


def test_limit_cuts_the_pictures_but_not_the_table(tmp_path):
    run = trainer(tmp_path)
    draw(run, units(), limit=1)
    assert len(run.loggers[0].sent[0][1]) == 1
    lines = (tmp_path / "prototypes" / "warm-epoch01.csv").read_text().splitlines()
    assert [line.split(",")[-1] for line in lines] == ["on_object", "", "", ""]  # no masks


def test_exact_repetition_changes_nothing_and_a_different_sheet_gets_a_number(tmp_path):
    folder = tmp_path / "prototypes"
    draw(trainer(tmp_path), units())
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    draw(trainer(tmp_path), units())
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    draw(trainer(tmp_path), units(weight=False))
    after = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert set(after) - set(before) == {"warm-epoch01-2.png", "warm-epoch01-2.csv"}
    assert {name: after[name] for name in before} == before


def test_other_actions_and_other_ranks_draw_nothing(tmp_path):
    draw(trainer(tmp_path), units(), "prune")
    draw(trainer(tmp_path, is_global_zero=False), units())
    draw(trainer(tmp_path, epoch=4), units())  # the last layer is still to be solved
    assert not list(tmp_path.iterdir())
    draw(trainer(tmp_path, epoch=4), units(), "fit_head")
    assert {path.name for path in (tmp_path / "prototypes").iterdir()} == {"last-epoch04.png", "last-epoch04.csv"}


def test_limit_is_checked():
    with pytest.raises(ValueError, match="`limit` to be at least 1, but got 0"):
        PrototypeMedia(limit=0)


@pytest.mark.parametrize("name", ["ProtoPNet", "ProtoPool", "ConceptBottleneck"])
def test_the_units_are_those_above_the_mean_over_classes(name):
    torch.manual_seed(5)
    model, image = MODELS[name](num_classes=4, image_size=(32, 32)).eval(), torch.rand(1, 3, 32, 32)
    label, ids, contributions = evidence(model, image, top_k=3)
    with torch.no_grad():
        output = model(image)
    assert label == output.logits.argmax()
    every = decide(model, output, output.logits.argmax(dim=1), most=3).contributions[0]
    assert contributions == pytest.approx(every.topk(3).values.tolist(), rel=1e-4)
    assert contributions == pytest.approx(every[ids].tolist(), rel=1e-4)


def test_units_of_one_place_count_together():
    assert by_place([3.0, 2.0, 2.5], [0, 1, 1]) == [[1, 2], [0]]  # 4.5 at the second place
    assert by_place([3.0, 2.0, 2.5], [0, 0, -1]) == [[0, 1], [2]]


@pytest.mark.parametrize("name", ["ConceptBottleneck", "BagNet", "ProtoPNet"])
def test_units_have_the_names_of_what_they_stand_for(name, monkeypatch):
    data = SketchBirds("tiny", image_size=32, train_size=16, val_size=16)
    data.setup("fit")
    model = MODELS[name](num_classes=data.num_classes, num_concepts=data.num_concepts, image_size=(32, 32))
    numbers = [f"prototype {unit}" for unit in range(len(model.units().active))]
    names = {"ConceptBottleneck": data.tables.concept_names, "BagNet": data.class_names}.get(name, numbers)
    captions = []
    monkeypatch.setattr(pictures, "unit_tile", lambda view, *lines: captions.append(lines[0]))
    media = ExplanationMedia(images=1, top_k=2, units=3)
    trainer = SimpleNamespace(datamodule=data, current_epoch=0)
    model.eval()
    media._images(trainer, model, choose_explainer(None, model))
    assert {caption.split(": contribution")[0].split(" + ")[0] for caption in captions} <= set(names)
    monkeypatch.setattr(pictures, "phase_of", lambda *_: SimpleNamespace(name="warm"))
    media._units(trainer, model, choose_explainer(None, model))
    assert captions[-1] == names[-1] + (f" · {data.class_names[-1]}" if name == "ProtoPNet" else "")
