"""When a picture says that it should not be trusted."""

import pytest
import torch

from protometry.datamodules import SketchBirds
from protometry.evaluation.explained.cautions import cautions
from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.evaluation.explained.scan import scan
from tests.lightning_modules.registry import MODELS, tiny_birds

HUNDRED = torch.arange(1, 101) / 100
LARGE, SMALL = (0, 0, 9, 7), (0, 0, 9, 6)  # 80 and 70 of 100 pixels


@pytest.mark.parametrize(("boxes", "best", "uncropped", "said"), [
    ([SMALL, None], 0.11, False, []),  # below 89 %
    ([LARGE], 0.5, False, ["1 of 1 box covers more than three quarters of the image: no sign of where the unit"]),
    ([LARGE, SMALL, LARGE], 0.5, False, ["2 of 3 boxes cover more than three quarters"]),
    ([SMALL], 0.1, False, ["Its highest similarity is 0.1, and 90 % of 100 training images have a higher one."]),
    ([], 0.01, False, ["and 99 % of 100 training images have a higher one: it may show none of the classes."]),
    ([], 0.0, False, ["and all 100 training images have a higher one: it may show none of the classes."]),
    ([SMALL], 0.5, True, ["trained on crops, and this is a whole photo: give `--crop X Y WIDTH HEIGHT`."]),
])  # fmt: skip
def test_what_to_know_before_an_explanation_is_read(boxes, best, uncropped, said):
    result = cautions(boxes, (10, 10), best, HUNDRED, uncropped)
    assert len(result) == len(said)
    assert all(part in whole for part, whole in zip(said, result, strict=True))
    if best < 0.5:
        assert cautions(boxes, (10, 10), best, None, uncropped) == []


def test_similarities_of_training_images_are_computed_once(tmp_path, monkeypatch):
    """Also by ``protometry.explain``, which knows no run folder; again for other weights, arguments or images."""
    monkeypatch.setenv("PROTOMETRY_CACHE", str(tmp_path))
    scanned = []
    monkeypatch.setattr(
        "protometry.evaluation.explained.unit_sources.scan", lambda *asked: scanned.append(1) or scan(*asked)
    )

    def scans(model, data):
        before = len(scanned)
        explained = ExplainedModel(model, data, size=48)
        best = explained.sources.best_similarities.tolist()
        return len(scanned) - before, best

    def built(**options):
        torch.manual_seed(3)
        return MODELS["ProtoPNet"](num_classes=8, image_size=(32, 32), **options).eval()

    (first, best), (second, again) = scans(built(), tiny_birds()), scans(built(), tiny_birds())
    assert (first, second, best) == (1, 0, again)
    (file,) = (tmp_path / "similarities").iterdir()
    file.write_text("[0.5,")
    changed = built()
    with torch.no_grad():
        changed.prototypes.vectors.add_(1e-4)
    more = SketchBirds("tiny", image_size=32, train_size=17)
    for model, data in ((built(), tiny_birds()), (changed, tiny_birds()), (built(), more)):
        assert [scans(model, data)[0] for _ in range(2)] == [1, 0]
