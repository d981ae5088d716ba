"""What nobody annotated decides nothing, in any metric, correction or training."""

import csv

import pytest
import torch
from torch.utils.data import default_collate

from protometry.callbacks import Interpretability
from protometry.callbacks.phases.concepts import embed_training_images
from protometry.datamodules import ImageFolder
from protometry.lightning_modules import ConceptBottleneck
from tests.engine_runs import run_engine
from tests.integration.test_unknown import CLASSES, SIZE, L, read, same
from tests.lightning_modules.registry import MODELS, tiny_trainer

NOISE = [f"alignment/misalignment_noise_{change}" for change in ("ac", "prc")]


SUITE = ["general", "concepts_full", "intervention", "class_representation", *NOISE]


def evaluated(name, data, task):
    """All that an evaluation says of an untrained model, whose concepts are fitted if they are fitted at once."""
    torch.manual_seed(0)
    model = MODELS[name](num_classes=data.num_classes, image_size=(SIZE, SIZE), task=task).eval()
    if hasattr(model, "load_percentiles"):
        model.load_percentiles(torch.full((L,), -3.0), torch.full((L,), 3.0))
    if "Posthoc" in name:
        model.fit_concepts(*embed_training_images(model, data), seed=0)
    result = run_engine(Interpretability(SUITE), model, data)
    said = {key: {name: entry.get(name) for name in entry} for key, entry in result.metrics.items()}
    return said, result.images, result.items, result.predictions


@pytest.mark.parametrize(
    ("name", "task"),
    [("ConceptBottleneck", "multiclass"), ("ConceptBottleneck joint", "multiclass"), ("CEM", "multiclass"),
     ("PosthocCBM hybrid", "multiclass"), ("ProtoPNet", "multiclass"), ("ProtoPNet", "multilabel")],
)  # fmt: skip
def test_metrics_and_corrections_do_not_read_what_is_unknown(table, name, task):
    each = [read(table, flip, task="attributes" if task == "multilabel" else None) for flip in (False, True)]
    (metrics, *plain), (others, *flipped) = (evaluated(name, data, task) for data in each)
    assert same(metrics, others)
    assert same(plain[:2], flipped[:2])
    assert plain[2] == flipped[2]
    unknown = {key for key, entry in metrics.items() if entry.get("unknown")}
    if task == "multilabel":
        assert {"general/accuracy", "general/f1"} <= unknown
    elif name == "ProtoPNet":
        assert "concepts/cem@1" in unknown
    else:
        assert {"concepts/auc", "concepts/oracle_impurity", "concepts/niche_impurity"} <= unknown
    assert "general/top_3_accuracy" not in unknown


@pytest.mark.parametrize("name", ["ConceptBottleneck", "CEM", "IntCEM", "PosthocCBM"])
def test_training_does_not_read_what_is_unknown(table, name, tmp_path):
    states = []
    for flip in (False, True):
        torch.manual_seed(0)
        model, data = MODELS[name](num_classes=CLASSES, image_size=(SIZE, SIZE), epoch_scale=0.2), read(table, flip)
        tiny_trainer(default_root_dir=tmp_path / str(flip)).fit(model, data)
        states.append(model.state_dict())
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items() if not value.isnan().any())


def test_a_concept_is_learnt_from_those_that_are_asked(table, tmp_path):
    """Every third photo of c0 is marked as red and nobody asked about the others: they are red, too."""
    rows = [["image", "attribute:red", "attribute:other"]]
    for path in sorted(table.glob("c*/*.png")):
        label, number = int(path.parent.name[1:]), int(path.stem)
        asked = number % 3 == 0
        rows.append([path.relative_to(table).as_posix(), int(label == 0) if asked else "", label % 2])
    with (tmp_path / "red.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    data = ImageFolder(str(table), table=str(tmp_path / "red.csv"), image_size=SIZE, batch_size=8, num_workers=0)
    torch.manual_seed(0)
    model = ConceptBottleneck(num_concepts=2, num_classes=CLASSES, image_size=(SIZE, SIZE), epoch_scale=2)
    tiny_trainer(default_root_dir=tmp_path).fit(model, data)
    for split in ("projection", "test"):
        batch = default_collate(list(data.dataset(split)))
        red = model.eval()(batch["image"]).scores[:, 0]
        assert red[batch["label"] == 0].min() > max(0.9, red[batch["label"] != 0].max())
