"""What is said of one photo: numbers that add up, boxes in its own pixels, the same for every kind of input."""

import base64
import io
import json
import math
from html import unescape

import numpy as np
import pytest
import torch
from PIL import Image

from protometry import PhotoExplainer
from protometry.datamodules.photos.one_photo import read_photo
from protometry.evaluation.__main__ import main
from protometry.evaluation.pages import Answer
from tests.evaluation.explained.evaluated import explained_of
from tests.lightning_modules.registry import tiny_birds
from tests.untrained import saved


@pytest.fixture(scope="module")
def birds():
    return tiny_birds()


@pytest.fixture
def photo(tmp_path):
    file = tmp_path / "a.png"
    Image.effect_noise((80, 50), 60).convert("RGB").save(file)
    return file


@pytest.mark.parametrize("name", ["ProtoPNet", "ProtoTree", "PIPNet", "BagNet", "PosthocCBM hybrid"])
def test_contributions_add_up_to_the_logit(name, birds, photo):
    explained = explained_of(name, birds)
    sample = read_photo(photo, birds)
    answer = Answer(explained.explain([sample], classes=1)[0], explained)
    with torch.no_grad():
        logits = explained.model(sample["image"][None]).logits[0].double()
    best = int(logits.argmax())
    assert answer.prediction == answer.explained == birds.class_names[best]
    assert answer.probability == pytest.approx(float(explained.model.probabilities(logits[None])[0, best]), rel=1e-5)
    assert answer.size == (80, 50)
    plain = json.loads(json.dumps(answer.json()))
    added = [unit["contribution"] for unit in plain["units"]] + [plain["rest"]]
    if name == "ProtoTree":
        assert math.prod(added) == pytest.approx(plain["tree"]["reach"], rel=1e-5)
        by_path = plain["tree"]["reach"] * plain["tree"]["leaf"]
        assert by_path + plain["tree"]["elsewhere"] == pytest.approx(plain["probability"], rel=1e-5)
        assert (plain["bias"], plain["residual"]) == (None, None)
    else:
        margin = float(logits[best] - logits.mean())
        assert plain["margin"] == pytest.approx(margin, abs=1e-5)
        assert sum(added) + plain["bias"] + (plain["residual"] or 0) == pytest.approx(margin, abs=1e-4)
    assert (plain["residual"] is not None) == ("hybrid" in name)
    assert unescape(answer._repr_html_().split('"')[3]) == answer.page()
    for unit, part in zip(plain["units"], answer.units, strict=True):
        assert (unit["source"] is None) == (name == "BagNet")
        if part.source:
            crop = Image.open(io.BytesIO(base64.b64decode(unit["source"]["crop"].partition(",")[2])))
            assert crop.size == part.source.view.crop.size


def test_several_labels_and_none(birds, photo):
    many = tiny_birds(task="attributes")
    explained = explained_of("ProtoPNet", many, task="multilabel")
    sample = read_photo(photo, many)
    (image,) = explained.explain([sample], classes=1)
    with torch.no_grad():
        above = explained.model(sample["image"][None]).logits[0] > explained.model.decision_threshold
    labels = [name for name, is_above in zip(many.class_names, above.tolist(), strict=True) if is_above]
    assert Answer(image, explained).prediction == labels
    explained = explained_of("PIPNet", birds)
    explained.model.score_threshold.fill_(2.0)  # above every score
    assert Answer(explained.explain([sample])[0], explained).prediction is None


def test_photos_of_every_kind_have_one_answer(birds, photo, tmp_path):
    main([str(saved("ProtoPNet", birds, tmp_path / "x.ckpt")), "--out", str(tmp_path / "model")])
    explainer = PhotoExplainer(tmp_path / "model")
    expected = explainer(photo).json()
    for same in (photo.read_bytes(), Image.open(photo), np.array(Image.open(photo))):
        assert explainer(same).json() == expected | {"photo": "photo"}
    whole = Image.new("RGB", (200, 100))
    whole.paste(Image.open(photo), (30, 20))
    cropped = explainer(whole, (30, 20, 80, 50)).json()
    assert cropped["size"] == (200, 100)
    for unit, moved in zip(expected["units"], cropped["units"], strict=True):
        assert tuple(np.subtract(moved["box"], (30, 20, 30, 20))) == unit["box"]
        assert 0 <= unit["box"][0] <= unit["box"][2] < 80
    assert explainer(photo).page().count("data:image/webp") > 5
    with pytest.raises(ValueError, match="float64"):
        explainer(np.zeros((3, 4)))
