"""When a picture says that it should not be trusted."""

from types import SimpleNamespace

import pytest
import torch

from reports.cautions import best_similarities, cautions

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


def test_similarities_of_training_images_are_computed_once(tmp_path):
    kept, scores = tmp_path / "explained" / "similarities.json", torch.tensor([[0.25, 0.5], [1.0, 0.75]])
    known = SimpleNamespace(training=SimpleNamespace(scores=scores.double()))
    assert best_similarities(known, None).tolist() == best_similarities(known, kept).tolist() == [0.5, 1.0]
    assert best_similarities(SimpleNamespace(), kept).tolist() == [0.5, 1.0]  # without a look at the images
    kept.write_text("[0.5,")
    assert best_similarities(known, kept).tolist() == [0.5, 1.0]
