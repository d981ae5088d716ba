"""When a picture says that it should not be trusted."""

import pytest
import torch

from protometry.datamodules import SketchBirds
from protometry.evaluation.demo import RUN
from protometry.evaluation.explained.cautions import Neighbours, cautions
from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.evaluation.explained.scan import scan
from protometry.evaluation.explained.unit_sources import UnitSources
from protometry.evaluation.trained_model import TrainedModel
from protometry.explanations import Upsample
from protometry.run_folder.layout import LAST
from tests.lightning_modules.registry import MODELS, tiny_birds

LARGE, SMALL = (0, 0, 9, 7), (0, 0, 9, 6)  # 80 and 70 of 100 pixels


@pytest.mark.parametrize(("boxes", "uncropped", "said"), [
    ([SMALL, None], False, []),
    ([LARGE], False, ["1 of 1 box covers more than three quarters of the image: no sign of where the unit"]),
    ([LARGE, SMALL, LARGE], False, ["2 of 3 boxes cover more than three quarters"]),
    ([SMALL], True, ["trained on crops, and this is a whole photo: give `--crop X Y WIDTH HEIGHT`."]),
])  # fmt: skip
def test_what_to_know_of_boxes(boxes, uncropped, said):
    result = cautions(boxes, (10, 10), uncropped)
    assert len(result) == len(said)
    assert all(part in whole for part, whole in zip(said, result, strict=True))


@pytest.mark.parametrize(("degrees", "said"), [
    (5.1, []),  # from the last image, as 94 of 100 are from their neighbours
    (6.1, ["It is unlike the training images. Its similarity to the nearest one is 0.994, and 96 % of 100"]),
    (10.1, ["It is unlike the training images: it may show none of the classes. Its similarity to the nearest one is"]),
])  # fmt: skip
def test_a_photo_is_unlike_images_that_have_nearer_neighbours(degrees, said):
    """Embeddings on a circle, whatever their lengths: 94 images 1 degree apart, two 5.5 degrees, four 7."""
    at = torch.cat([torch.arange(94.0), 200 + 5.5 * torch.arange(2), 300 + 7.0 * torch.arange(4)]).deg2rad()
    lengths = torch.linspace(0.1, 9, 100)[:, None]
    neighbours = Neighbours(torch.stack([at.cos(), at.sin()], dim=1) * lengths)
    asked = torch.tensor(93.0 + degrees).deg2rad()
    latent = torch.stack([asked.cos(), asked.sin()])[:, None, None] * torch.tensor([[1.0, 3.0]])
    assert [sentence[: len(part)] for sentence, part in zip(neighbours.cautions(latent), said, strict=True)] == said
    with pytest.raises(ValueError, match="with 3 channels, as the latent of the model has, but got 2"):
        neighbours.cautions(torch.ones(3, 1, 2))


def test_noise_is_unlike_the_training_images_and_test_images_are_not():
    run = TrainedModel(RUN / LAST)
    model, data = run.model(), run.data()
    neighbours = UnitSources(model, data, Upsample(), data.class_names, 48).neighbours
    test = torch.stack([data.dataset("test")[index]["image"] for index in range(0, 400, 4)])
    noise = torch.rand(20, 3, 64, 64, generator=torch.Generator().manual_seed(0))

    def cautioned(images):
        with torch.no_grad():
            return sum(bool(neighbours.cautions(latent)) for latent in model(images).latent) / len(images)

    (explained,) = ExplainedModel(model, data, size=48).explain([{"image": noise[0], "sample_id": "noise"}])
    assert explained.cautions[0].startswith("It is unlike the training images: it may show none of the classes.")
    assert cautioned(test) <= 0.08  # 0.05 are expected
    assert cautioned(noise) == cautioned(1 - test[:20]) == cautioned(torch.zeros(1, 3, 64, 64)) == 1


def test_training_images_are_embedded_once(tmp_path, monkeypatch):
    """Also by ``protometry.explain``, which knows no run folder; again for other weights, arguments or images."""
    monkeypatch.setenv("PROTOMETRY_CACHE", str(tmp_path))
    scanned = []
    monkeypatch.setattr(
        "protometry.evaluation.explained.unit_sources.scan", lambda *asked: scanned.append(1) or scan(*asked)
    )

    def scans(model, data):
        before = len(scanned)
        explained = ExplainedModel(model, data, size=48)
        embeddings = explained.sources.neighbours.embeddings.tolist()
        return len(scanned) - before, embeddings

    def built(**options):
        torch.manual_seed(3)
        return MODELS["ProtoPNet"](num_classes=8, image_size=(32, 32), **options).eval()

    (first, embedded), (second, again) = scans(built(), tiny_birds()), scans(built(), tiny_birds())
    assert (first, second, embedded) == (1, 0, again)
    (file,) = (tmp_path / "embeddings").iterdir()
    file.write_text("[0.5,")
    changed = built()
    with torch.no_grad():
        changed.prototypes.vectors.add_(1e-4)
    more = SketchBirds("tiny", image_size=32, train_size=17)
    for model, data in ((built(), tiny_birds()), (changed, tiny_birds()), (built(), more)):
        assert [scans(model, data)[0] for _ in range(2)] == [1, 0]
