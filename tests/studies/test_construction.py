"""Studies built from small untrained models: what is shown, what is known of it, and what is refused."""

import hashlib
import io
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from protometry.datamodules import SketchBirds
from protometry.evaluation.explained.scan import loaders, samples_of, scan
from protometry.explanations.tree_path import grow, path
from protometry.explanations.views import fit, to_image
from protometry.lightning_modules.contract import DecidesByTree, UnitTable
from protometry.studies.__main__ import main
from protometry.studies.bundle import media_name
from protometry.studies.construction.build import build
from protometry.studies.construction.hive import arguments, hive
from protometry.studies.construction.method import Method, StudiedModel
from protometry.studies.simulation.observer import SimulatedParticipant
from protometry.studies.simulation.simulate import simulate
from protometry.studies.study import TREE_LEAVES, Assignment, Pages, Platform, Quality
from tests.lightning_modules.registry import MODELS, tiny_birds
from tests.tiny_runs import ROOT

PLACES = Assignment(people=4, right=2, wrong=2)
SIZES = {"LARGE": 112, "SMALL": 56}


@pytest.fixture(scope="module")
def birds():
    birds = tiny_birds(test_size=48)
    birds.setup("test")
    return birds


@cache
def model_of(name):
    torch.manual_seed(0)
    return MODELS[name](num_classes=8, image_size=(32, 32)).eval()


@cache
def planted(model, data, split):
    """Predictions that are right for every other image, and, by a tree, on a path of its own for every image."""
    result = scan(model, data, split)
    if isinstance(model, DecidesByTree):
        scores = torch.rand(result.scores.shape, generator=torch.Generator().manual_seed(0)).double()
        result = replace(result, scores=scores, logits=model.tree(scores.float(), "greedy").double())
    return replace(result, labels=[((label + place % 2) % 8,) for place, label in enumerate(result.predicted)])


@pytest.fixture
def run(tmp_path, monkeypatch, birds):
    """Builds a study of an untrained model, with small pictures, which are quickly encoded."""
    method = "protometry.studies.construction.method"
    monkeypatch.setattr(f"{method}.load_datamodule", lambda path, **changes: birds)
    monkeypatch.setattr(f"{method}.scan", planted)
    for size, pixels in SIZES.items():
        monkeypatch.setattr(f"protometry.studies.construction.drawing.{size}", pixels)
    (tmp_path / "last.ckpt").write_bytes(b"weights")
    (tmp_path / "consent.txt").write_text("What happens here.", "utf-8")

    def start(name, out="study", task="distinction", places=PLACES, items=2, catch_every=0, salt=None, **options):
        monkeypatch.setattr(f"{method}.load_model", lambda path, **_: model_of(name))
        form = options.pop("form", {"ProtoPNet": "units", "ProtoTree": "tree"}.get(name, "heatmap"))
        arms = [Method("main", tmp_path / "last.ckpt", form, **options)]
        pages = Pages(output=task == "distinction" and form != "tree")
        consent, more = tmp_path / "consent.txt", {"pages": pages, "salt": salt}
        bundle = build(tmp_path / out, "birds", "Birds", arms, places, consent, task, items, 0, catch_every, **more)
        return bundle, planted(model_of(name), birds, "test")

    return start


def webp(picture):
    buffer = io.BytesIO()
    picture.save(buffer, "webp", quality=90)
    return buffer.getvalue(), "webp"


@pytest.mark.parametrize("name", ["ProtoPNet", "BagNet", "Classifier"])
def test_key_and_options_are_those_of_the_model(run, birds, name):
    bundle, seen = run(name, labels=True, examples=1)
    arm, places = bundle.study.arms[0], {sample: index for index, sample in enumerate(seen.sample_ids)}
    assert sum(bundle.key.items[item.id].right for item in arm.items) == 2
    for item in arm.items:
        key = bundle.key.items[item.id]
        index = places[key.image]
        names = {option.id: option.label for option in item.options}
        ranked = [birds.class_names[label] for label in seen.logits[index].argsort(descending=True).tolist()]
        truth = birds.class_names[seen.labels[index][0]]
        assert (names[key.output], names[key.answer]) == (ranked[0], truth)
        assert key.right == (ranked[0] == truth)
        assert set(names.values()) == set(ranked[:4] if truth in ranked[:4] else [*ranked[:3], truth])
        assert [option.id for option in item.options] == sorted(names)  # no order of the model's
        if name == "ProtoPNet":
            units = [row for option in item.options for row in option.rows]
            assert set(key.scores) == {row.id for row in units}
            assert {round(score, 9) for score in key.scores.values()} <= {
                round(score, 9) for score in seen.scores[index].tolist()
            }
    for picture in bundle.media():
        image = Image.open(io.BytesIO((bundle.folder / "media" / picture).read_bytes()))
        assert not {"exif", "xmp", "icc_profile", "comment"} & set(image.info)
        assert max(image.size) in SIZES.values()


@pytest.mark.parametrize("task", ["agreement", "distinction"])
def test_a_tree_is_shown_as_the_path_the_model_took(run, tmp_path, birds, task):
    """For distinction, the last two decisions are open, and one of their four ends is the true class."""
    places = replace(PLACES, wrong=2 if task == "agreement" else 0)
    bundle, seen = run("ProtoTree", task=task, places=places, labels=True)
    for item in bundle.study.arms[0].items:
        key = bundle.key.items[item.id]
        index = seen.sample_ids.index(key.image)
        steps, leaf = path(grow(model_of("ProtoTree")), seen.scores[index])
        assert leaf.label == seen.predicted[index]
        rows = item.options[0].rows
        open_steps = 2 if task == "distinction" else 0
        assert [row.decision for row in rows] == [
            "present" if step.present > 0.5 else "absent" for step in steps[: len(steps) - open_steps]
        ]
        assert [key.scores[row.id] for row in rows] == [step.present for step in steps[: len(rows)]]
        if task == "distinction":
            last = " ".join("present" if step.is_present else "absent" for step in steps[-2:])
            assert key.answer == last
            units = [steps[-2].node.unit, steps[-2].node.absent.unit, steps[-2].node.present.unit]
            assert [key.scores[row.id] for row in item.decisions] == seen.scores[index][units].tolist()
            ends = [
                node for pair in (steps[-2].node.absent, steps[-2].node.present) for node in (pair.absent, pair.present)
            ]
            assert item.leaves == [birds.class_names[end.label] for end in ends]
            assert item.leaves[TREE_LEAVES.index(last)] == birds.class_names[seen.predicted[index]]
    assert simulate(bundle.folder, tmp_path / "a.sqlite", SimulatedParticipant("noisy"), 1) == 1


def test_a_region_is_what_its_box_holds(run, monkeypatch):
    """With colours that encode the position of a pixel, the crop begins and ends at the box that is drawn."""
    shown = iter(range(1000))
    monkeypatch.setattr("protometry.studies.construction.drawing.SMALL", 224)  # 7 for each pixel of the image

    def planted(dataset, names):
        across = (torch.arange(32) + 0.5).div(32).expand(32, 32)
        for sample in samples_of(dataset, names):
            yield {**sample, "image": torch.stack([across, across.T, torch.full_like(across, 0.7 + next(shown) / 1e4)])}

    for module in ("protometry.studies.construction.drawing", "protometry.evaluation.explained.unit_sources"):
        monkeypatch.setattr(f"{module}.samples_of", lambda dataset, names: list(planted(dataset, names)))
    bundle, _ = run("ProtoPNet", items=1, places=replace(PLACES, right=1, wrong=1))
    rows = [row for item in bundle.study.arms[0].items for option in item.options for row in option.rows]
    pairs = [pair for row in rows for pair in (row.pictures[:2], row.pictures[:1:-1])]
    sizes = set()
    for pictures in pairs:
        photo, region = (
            np.asarray(Image.open(bundle.folder / "media" / name).convert("RGB"), float) for name in pictures
        )
        down, across = np.nonzero(photo[..., 2] < 90)  # orange; all else is blue
        for places, channel, axis in ((across, 0, 0), (down, 1, 1)):
            colours = region[..., channel].mean(axis=axis) / 255 * 32
            first, end = places.min() / 7, (places.max() + 1) / 7
            assert [colours[0], colours[-1]] == pytest.approx([first + 0.5, end - 0.5], abs=0.6)
            sizes.add(round(end - first))
    assert min(sizes) < 13  # of 32 pixels: elsewhere, a crop has at least 40 % of the side


def test_rows_are_what_decides_for_a_class():
    """Of five units, one has no weight for class 0, one more for other classes, and one is not active."""
    explained = object.__new__(StudiedModel)
    weight = torch.tensor([[2.0, 1.0, 0.0, 3.0, 9.0], [0.0, 4.0, -5.0, 2.0, 0.0], [0.0, 4.0, -5.0, 2.5, 0.0]])
    active = torch.tensor([True, True, True, True, False])
    explained.method, explained.names = Method("main", Path(), "units"), ["one", "two", "three"]
    explained.units = UnitTable("prototype", active, weight.T > 0, "max", weight)
    explained.outputs = SimpleNamespace(
        scores=torch.tensor([[1.0, 9.0, 9.0, 1.0, 9.0], [0.1, 9.0, 9.0, 1.0, 9.0]]).double()
    )
    assert explained.rows_of(0, 0) == [0, 3]  # 4/3 and 1/2 above the mean over classes, though unit 3 has more weight
    assert explained.rows_of(1, 0) == [3, 0]
    explained.method = replace(explained.method, rows=1)
    assert explained.rows_of(0, 0) == [0]


def test_the_same_study_is_the_same_bytes_and_can_be_answered(run, tmp_path):
    first, _ = run("Classifier", task="agreement")
    again, _ = run("Classifier", "again", task="agreement", salt=first.key.salt)
    assert first.hash == again.hash
    assert simulate(again.folder, tmp_path / "a.sqlite", SimulatedParticipant("noisy"), 1) == 1


def test_ids_cannot_be_computed_from_what_is_public(run):
    """A hash of seed, arm, image and class named the predicted class of every item."""
    bundle, seen = run("Classifier")
    named = [f"0 main {image}{more}" for image in seen.sample_ids for more in ("", *(f" class {k}" for k in range(8)))]
    guesses = {hashlib.sha256(name.encode()).hexdigest()[:12] for name in named}
    ids = {one.id[1:] for item in bundle.study.arms[0].items for one in (item, *item.options)}
    assert not ids & guesses


def test_evidence_is_that_of_the_model(run):
    bundle, _ = run("ProtoPNet", task="agreement", evidence=True, catch_every=1)
    assert [item.attention is None for item in bundle.study.arms[0].checks] == [False] * 4
    for item in bundle.study.arms[0].items:
        key = bundle.key.items[item.id]
        for row in item.options[0].rows:
            shown = row.evidence
            assert shown["score"] == key.scores[row.id]
            assert shown["contribution"] == pytest.approx(shown["weight"] * shown["score"])
    origin = bundle.study.arms[0].origin
    assert (origin["model"], origin["checkpoint"]) == ("ProtoPNet", hashlib.sha256(b"weights").hexdigest())
    assert len(origin["data"]) == 64


def test_test_images_of_other_data_are_those_of_the_config(run, birds, tmp_path):
    """Images of classes that the model does not know are left out, and training photos still come from the run."""
    other = "{class_path: SketchBirds, init_args: {preset: small, test_size: 120, seed: 9}}"  # 20 classes
    (tmp_path / "other.yaml").write_text(f"data: {other}\n", "utf-8")
    bundle, _ = run("Classifier", data=tmp_path / "other.yaml", examples=1, task="agreement")
    other = SketchBirds("small", image_size=32, test_size=120, seed=9)
    other.setup("test")
    of_class = dict(zip(other.dataset("test").sample_ids, other.dataset("test").labels.tolist(), strict=True))
    for item in bundle.study.arms[0].items:
        assert other.class_names[of_class[bundle.key.items[item.id].image]] in birds.class_names
        (sample,) = samples_of(other.dataset("test"), [bundle.key.items[item.id].image])
        assert media_name(*webp(fit(to_image(sample["image"]), SIZES["LARGE"]))) == item.photo
    (name,) = bundle.study.arms[0].items[0].options[0].examples
    training = birds.dataset("projection")
    photos = {
        media_name(*webp(fit(to_image(one["image"]), SIZES["SMALL"])))
        for one in samples_of(training, training.sample_ids)
    }
    assert name in photos


def test_maps_may_tell_the_probability(run):
    bundle, seen = run("Classifier", evidence=True)
    for item in bundle.study.arms[0].items:
        shares = sorted(option.evidence["probability"] for option in item.options)
        logits = seen.logits[seen.sample_ids.index(bundle.key.items[item.id].image)]
        assert shares[-1] == pytest.approx(float(logits.softmax(0).amax()))
        assert sum(shares) < 1  # four of eight classes
        for picture in [picture for option in item.options for picture in option.pictures]:
            red, _, blue = np.moveaxis(np.asarray(Image.open(bundle.folder / "media" / picture), int), 2, 0)
            assert (blue - red).max() < 40  # from white for little to orange for much, as the legend says


def test_other_pixels_are_other_data(run, monkeypatch):
    first, _ = run("Classifier", "first", task="agreement")

    @contextmanager
    def darker(*arguments):
        with loaders(*arguments) as loader:
            yield ({"image": 0.9 * batch["image"]} for batch in loader)

    monkeypatch.setattr("protometry.studies.construction.method.loaders", darker)
    second, _ = run("Classifier", "second", task="agreement")
    assert first.study.arms[0].origin["data"] != second.study.arms[0].origin["data"]


def test_controls_show_something_else(run):
    own, _ = run("ProtoPNet", "own", task="agreement", salt="1")
    shuffled, _ = run("ProtoPNet", "shuffled", task="agreement", control="shuffled", salt="1")
    assert own.key.items.keys() == shuffled.key.items.keys()
    assert all(own.key.items[name].scores.keys() != entry.scores.keys() for name, entry in shuffled.key.items.items())
    maps, _ = run("Classifier", "maps", task="agreement", salt="1")
    noise, _ = run("Classifier", "noise", task="agreement", control="random", salt="1")
    for item, other in zip(maps.study.arms[0].items, noise.study.arms[0].items, strict=True):
        assert item.photo == other.photo
        assert item.options[0].pictures != other.options[0].pictures
    bare, _ = run("Classifier", "bare", task="agreement", form="none", labels=True)
    assert not any(option.pictures for item in bare.study.arms[0].items for option in item.options)


def test_all_published_studies_are_plans(tmp_path):
    """Nineteen studies of fifty people, by task, form and variant as in the paper's tables."""
    assert len(hive().studies) == 19
    collected = {}
    for name in hive().studies:
        given = arguments(name, tmp_path / "last.ckpt")
        (arm,) = given["arms"]
        places = given["assignment"]
        assert (places.people, places.by, given["items"]) == (50, "forms", 10 * places.right)
        variant = (arm.form, given["task"], arm.examples, arm.labels, arm.rating)
        collected.setdefault(arm.id, []).append((*variant, places.right, places.wrong))
    assert {name: len(studies) for name, studies in collected.items()} == {
        **{"cub-gradcam": 3, "cub-bagnet": 3, "cub-protopnet": 2, "cub-prototree": 3},
        **{"imagenet-gradcam": 4, "imagenet-bagnet": 4},
    }
    assert ("units", "distinction", 0, False, "rows", 4, 0) in collected["cub-protopnet"]
    assert ("tree", "agreement", 0, False, "first_disagreement", 5, 5) in collected["cub-prototree"]


@pytest.mark.parametrize(
    ("model", "name"), [("ProtoPNet", "cub_protopnet_distinction"), ("ProtoTree", "cub_prototree_agreement_tree")]
)
@pytest.mark.usefixtures("run")
def test_a_published_study_is_built_and_answered(tmp_path, monkeypatch, capsys, model, name):
    monkeypatch.setattr("protometry.studies.construction.method.load_model", lambda path, **_: model_of(model))
    files = ["--ckpt_path", str(tmp_path / "last.ckpt"), "--consent", str(tmp_path / "consent.txt")]
    assert main(["hive", "--name", name, *files, "--forms", "2", "--out", str(tmp_path / "out")]) == 0
    assert "in 2 forms for 10 people" in capsys.readouterr().out
    assert simulate(tmp_path / "out", tmp_path / "a.sqlite", SimulatedParticipant("noisy"), 1) == 1
    assert main(["hive", "--name", "cub", *files, "--out", str(tmp_path / "other")]) == 2
    assert "one of cub_gradcam_agreement, " in capsys.readouterr().err


@pytest.mark.parametrize(("name", "options", "message"), [
    ("Classifier", {"items": 30}, r"24 right predictions on 48 images, but 31 are needed"),
    ("BagNet", {"form": "units"}, "units of the model are its classes"),
    ("ProtoTree", {"form": "units"}, "no weights for classes: for a tree, use the form tree"),
    ("ProtoTree", {}, "cannot lead to the right class where .* give `assignment.wrong` as 0"),
    ("ProtoTree", {"items": 25, "task": "agreement"}, "whose path leads to the predicted class, but 26 are needed"),
    ("Classifier", {"form": "tree", "task": "agreement"}, "does not decide by a tree"),
    ("Classifier", {"control": "shuffled"}, "control shuffled does not fit the form heatmap"),
    ("Classifier", {"form": "none", "task": "agreement"}, "shows nothing of the decision .*: give the arm `labels"),
    ("Classifier", {"clarity": True}, "the form heatmap has no rows"),
    ("Classifier", {"examples": 4}, "`examples` is 0 to 3"),
    ("Classifier", {"places": Assignment(4, 3, 2)}, "has 2 items with a right prediction"),
])  # fmt: skip
def test_what_cannot_be_built_is_refused(run, name, options, message):
    with pytest.raises(ValueError, match=message):
        run(name, **options)


def test_the_study_of_ten_birds_lacks_nothing_but_its_checkpoints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(["build", "--config", "configs/study/cub200.yaml", "--out", str(tmp_path / "study")]) == 2
    assert "runs/hive/cub-classifier/checkpoints/last.ckpt" in capsys.readouterr().err


MISSING = Method("main", Path("none.ckpt"))


@pytest.mark.parametrize(("given", "message"), [
    ({"quality": Quality(family=["main/study/agreement_totl"])}, "Did you mean 'main/study/agreement_total'"),
    ({"quality": Quality(max_focus_losses=-1)}, "`quality.max_focus_losses` of the arguments to be at least 0"),
    ({"quality": Quality(min_seconds=-1)}, "`quality.min_seconds` .* to be at least 0, but got -1"),
    ({"quality": Quality(margin=2)}, "`quality.margin` .* to be less than 1, but got 2"),
    ({"assignment": replace(PLACES, people=0)}, "`assignment.people` .* to be at least 1, but got 0"),
    ({"assignment": replace(PLACES, right=-1)}, "`assignment.right` .* to be at least 0, but got -1"),
    ({"assignment": replace(PLACES, reserve_minutes=-1)}, "`assignment.reserve_minutes` .* to be at least 0"),
    ({"assignment": replace(PLACES, arms=2)}, "a participant cannot see 2 of 1 arms"),
    ({"assignment": replace(PLACES, by="forms"), "items": 3}, "`items`, 3, cannot be divided into forms of 2"),
    ({"platform": Platform(wage=-1)}, "`platform.wage` .* to be at least 0, but got -1"),
    ({"platform": Platform(minutes=0)}, "`platform.minutes` .* to be greater than 0, but got 0"),
    ({"platform": Platform("prolific")}, "`platform.completed` and `platform.screened` with"),
    ({"platform": Platform("prolific", completed="C"), "pages": Pages(quiz=False)}, "none.ckpt is not a file"),
    ({"title": " "}, "`title` .* to match pattern"),
    ({"id": "Birds of 2026"}, "`id` .* to match pattern .*, but got 'Birds of 2026'"),
    ({"arms": []}, "`arms` .* to have at least 1 item"),
    ({"arms": [MISSING, MISSING]}, "the id 'main' is used 2 times"),
    ({"arms": [replace(MISSING, rows=0)]}, "`rows` at least 1"),
    ({"items": -1}, "`items` to be at least 1, but got -1"),
])  # fmt: skip
def test_what_no_study_has_is_refused_before_any_checkpoint_is_read(tmp_path, given, message):
    (tmp_path / "consent.txt").write_text("What happens here.", "utf-8")
    usual = {"id": "birds", "title": "Birds", "arms": [MISSING], "assignment": PLACES}
    with pytest.raises(ValueError, match=message):
        build(tmp_path / "out", **usual | given, consent=tmp_path / "consent.txt")
    assert not (tmp_path / "out").exists()


def test_a_model_that_guesses_is_refused(run, monkeypatch):
    monkeypatch.setattr(
        "protometry.studies.construction.method.Scan.correct", property(lambda seen: [index < 6 for index in range(48)])
    )
    with pytest.raises(ValueError, match=r"its accuracy of 12\.5 % on the test images is at the level of guessing"):
        run("Classifier")
