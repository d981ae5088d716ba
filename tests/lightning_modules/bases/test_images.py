"""Images that a model would misunderstand are refused; what it may see, and what it costs."""

import pytest
import torch

from protometry.lightning_modules import Classifier, ProtoPNet
from protometry.lightning_modules.bases import images as module

IMAGES = torch.rand(2, 3, 32, 48)


@pytest.fixture(scope="module")
def model():
    return ProtoPNet(num_classes=2, image_size=(32, 48), prototypes_per_class=1, prototype_channels=4).eval()


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        ((255 * IMAGES).byte(), TypeError, r"floats in \[0, 1\], but got torch.uint8. .*`images / 255`"),
        (255 * IMAGES, ValueError, r"in \[0, 1\], but got values from .* Divide 8-bit pixels by 255"),
        ((IMAGES - 0.45) / 0.225, ValueError, "Leave normalisation to the model"),
        (IMAGES.masked_fill(IMAGES.ge(0.9), torch.nan), ValueError, "but got NaN.$"),
        (IMAGES[0], ValueError, r"but got \(3, 32, 48\). .*`images\[None\]`"),
        (IMAGES.numpy(), TypeError, "but got ndarray"),
        ([IMAGES], TypeError, "but got list"),
    ],
)
def test_what_would_be_misunderstood_is_refused(model, images, error, message):
    with pytest.raises(error, match=f"Expected images .*{message}"):
        model(images)


def test_what_resizing_and_noise_overshoot_is_seen(model):
    for images in (IMAGES * 1.2 - 0.1, IMAGES[:0]):
        assert len(model(images).logits) == len(images)


def test_another_size_is_warned_of_and_refused_where_the_backbone_minds(model, monkeypatch):
    with pytest.warns(UserWarning, match="images of 32x48 pixels .* but got 48x48: it sees them at another scale"):
        model(torch.rand(1, 3, 48, 48))

    def refuse(size):
        raise ValueError("a position for every patch")

    monkeypatch.setattr(model.backbone, "geometry", refuse)
    with pytest.raises(ValueError, match=r"images of 32x48 pixels .* but got 48x48\. Resize them"):
        model(torch.rand(1, 3, 48, 48))


def test_values_are_looked_at_once_on_other_devices_than_a_cpu(monkeypatch):
    looks = []
    monkeypatch.setattr(module, "check_values", lambda images: looks.append(images.device.type))
    for device in ("cpu", "meta"):
        model = Classifier(num_classes=2, image_size=(32, 48)).to(device)
        for _ in range(3):
            model(IMAGES.to(device))
    assert looks == ["cpu"] * 3 + ["meta"]
