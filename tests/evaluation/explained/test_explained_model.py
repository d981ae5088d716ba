"""Explained images: every model, the photos that stand for units, flags, the figure and the page of its own."""

import re
from dataclasses import replace

import pytest
import torch

from protometry import explain
from protometry.evaluation.explained.explained_figure import LINE, explained_figure
from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.evaluation.pages.standalone_page import standalone_page
from protometry.explanations import Upsample
from protometry.lightning_modules.contract import empty_sources
from protometry.lightning_modules.heads.tree import LEFT
from tests.lightning_modules.registry import MODELS, tiny_birds

HOSTILE = "<img src=x onerror=alert(1)>\"'</script>"


@pytest.fixture(scope="module")
def birds():
    return tiny_birds()


def built(name, **options):
    torch.manual_seed(3)
    return MODELS[name](num_classes=8, image_size=(32, 32), **options).eval()


@pytest.mark.parametrize(
    "name", ["ProtoPNet", "ProtoTree", "PIPNet", "BagNet", "PosthocCBM hybrid", "QPM ternary", "CEM"]
)
def test_every_kind_of_model_has_a_figure_and_a_page(name, birds):
    model, sample = built(name), birds.dataset("test")[0]
    explained = ExplainedModel(model, birds, size=48, class_names=[HOSTILE, *birds.class_names[1:]])
    (image,) = explained.explain([{**sample, "uncropped": True}], most=3)
    page = standalone_page(image, explained)
    assert page.count('class="caution">The model was trained on crops') == 1
    assert re.search(r"<title>[^<]*: predicted [^<]*, [\d.]+ %", page)
    assert explained.sources.neighbours is not None
    assert "<img src=x" not in page
    assert "&lt;img src=x" in page
    assert page.count("<img ") == page.count("alt=")
    assert not re.search(r'(src|href)="(?!data:image/webp|#main|#photo-)', page)
    assert set(re.findall('href="#(photo-.*?)"', page)) <= set(re.findall('id="(photo-.*?)"', page))
    assert all(len(rows) <= 3 for _, rows in image.tables)
    assert ("logit of" in page) == (name != "ProtoTree")
    assert ("residual, not from units" in page) == ("hybrid" in name)
    picture = explained_figure(image, explained)
    assert picture.width > 5 * 48
    if name != "ProtoPNet":
        return
    assert page == standalone_page(image, explained)
    (cropped,) = explained.explain([sample], most=3)
    assert picture.height == explained_figure(cropped, explained).height + LINE  # of the caution
    assert picture.tobytes() == explained_figure(replace(cropped, cautions=image.cautions), explained).tobytes()


def test_a_projected_prototype_stands_for_its_patch_until_it_changes(birds, monkeypatch):
    monkeypatch.setattr(
        "protometry.evaluation.explained.explained_model.same_places", lambda maps: list(range(len(maps)))
    )  # a line each
    model, photo = built("ProtoPNet"), birds.dataset("projection")[5]
    with torch.no_grad():
        patch = model(photo["image"][None]).latent[0, :, 1, 2]
    source = empty_sources(16)
    names = [photo["sample_id"], *[""] * 15]
    only = torch.arange(16) == 0
    put = {"sample_key": photo["sample_key"], "row": 1, "col": 2, "label": photo["label"], "distance": 0.0}
    changed = {name: torch.where(only, torch.as_tensor(value), getattr(source, name)) for name, value in put.items()}
    box = torch.tensor(model.geometry.cell_box(1, 2)).expand(16, 4)
    source = replace(source, sample_id=names, box=torch.where(only[:, None], box, source.box), **changed)
    model.load_patches(patch.expand(16, -1), only, source)
    fresh = ExplainedModel(model, birds, size=48).sources.of([0, 1])
    assert (fresh[0].origin, fresh[0].sample_id, fresh[0].stale) == ("projected onto", photo["sample_id"], False)
    # the others are shown by the training image with the largest score
    images = torch.stack([sample["image"] for sample in birds.dataset("projection")])
    best = model(images).scores[:, 1].argmax()
    assert fresh[1].origin == "strongest of 24 training images"
    assert fresh[1].sample_id == birds.dataset("projection").sample_ids[best]
    with torch.no_grad():
        model.prototypes.vectors[0] += 1.0
    changed = ExplainedModel(model, birds, size=48)
    assert changed.sources.of([0])[0].stale
    row = next(
        row
        for table, rows in changed.explain([photo], classes=8, most=16)[0].tables
        for row in rows
        if row.line.unit == 0 and table.label == 0
    )
    assert {"this very image is its source", "changed since its projection"} <= set(row.flags)


def test_flags_of_other_classes_own_ones_that_speak_against_and_flat_maps(birds):
    model, photo = built("ProtoPNet"), birds.dataset("test")[1]
    with torch.no_grad():
        model.linear.weight[:, ::2] *= -1  # of the first prototype of every class

    class Flat(Upsample):
        def _maps(self, model, asked):
            return super()._maps(model, asked) * 0

    (table, rows), *_ = ExplainedModel(model, birds, Flat(), 48).explain([photo], most=16)[0].tables
    for row in rows:
        own, turned = row.line.unit // 2 == table.label, row.line.unit % 2 == 0
        assert "of another class" in row.flags or own
        assert ("counts against its own class" in row.flags) == (own and turned)
        assert "flat map" in row.flags
        assert row.view.box is None


def test_an_image_that_nothing_speaks_for(birds):
    model = built("PIPNet")
    model.score_threshold.fill_(2.0)  # above every score
    (image,) = (explained := ExplainedModel(model, birds, size=48)).explain([birds.dataset("test")[0]])
    assert image.abstains
    assert "the model abstains" in standalone_page(image, explained)


def test_a_tree_that_was_pruned_to_one_leaf(birds):
    model = built("ProtoTree")
    model.tree.route.fill_(LEFT)
    model.prototypes.active.fill_(False)
    (image,) = (explained := ExplainedModel(model, birds, size=48)).explain([birds.dataset("test")[0]])
    assert ([rows for _, rows in image.tables], explained_figure(image, explained).mode) == ([[], [], []], "RGB")
    assert "absent" not in standalone_page(image, explained).split("</style>")[1]


def test_bad_input(birds):
    with pytest.raises(ValueError, match="`size` to be between 32 and 256 pixels, but got 300"):
        ExplainedModel(built("BagNet"), birds, size=300)
    with pytest.raises(ValueError, match="`most` to be at least 0, but got -2"):
        explain(built("BagNet"), birds, birds.dataset("test")[0], most=-2)
    assert explain(built("BagNet"), birds, birds.dataset("test")[0], size=48).mode == "RGB"
