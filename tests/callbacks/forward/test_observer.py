"""Forwards of one fixed size: nothing an image gives depends on the batch it came in."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from protometry.callbacks.forward.images_per_forward import images_per_forward
from protometry.callbacks.forward.observer import Attack, Images, Observer
from protometry.explanations import BoxMaps, Upsample
from protometry.lightning_modules.contract import ModelOutput, UnitTable
from protometry.metrics.functional import gather_units, top_units
from tests.lightning_modules.registry import TINY_PROTOPNET

GENERATOR = torch.Generator().manual_seed(0)
PIXELS = torch.rand(7, 3, 32, 32, generator=GENERATOR)
IMAGES = Images(PIXELS, torch.arange(7), [f"bird {i}" for i in range(7)])


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return TINY_PROTOPNET(num_classes=4, image_size=(32, 32)).eval()


def part(rows):
    return Images(IMAGES.pixels[rows], IMAGES.keys[rows], [IMAGES.names[i] for i in rows])


def shapes_of(model, function):
    seen = []
    hook = model.register_forward_pre_hook(lambda module, inputs: seen.append(tuple(inputs[0].shape)))
    try:
        function()
    finally:
        hook.remove()
    return seen


@torch.inference_mode()
def test_every_forward_has_the_same_shape(model):
    observer = Observer(model, Upsample(), chunk=4, top_k=3)
    assert shapes_of(model, lambda: observer.see(IMAGES)) == [(4, 3, 32, 32)] * 2
    assert shapes_of(model, lambda: observer.see(part([5]))) == [(4, 3, 32, 32)]


@torch.inference_mode()
@pytest.mark.parametrize("rows", [[0], [6, 2], [3, 4, 5, 6, 0], list(range(7))])
def test_equal_images_give_equal_bits_in_any_batch(model, rows):
    observer, classes = Observer(model, Upsample(), 4, 3, BoxMaps()), torch.arange(14).view(7, 2) % 4
    whole, seen = (
        observer.see(images, explain=True, keep_maps=True, classes=lambda at, _, own=own: own[at])
        for images, own in ((IMAGES, classes), (part(rows), classes[rows]))
    )
    assert vars(seen).pop("residual") is None
    assert vars(seen).pop("context") is None
    for name, tensor in vars(seen).items():
        assert torch.equal(tensor, getattr(whole, name)[rows]), name


@torch.inference_mode()
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["logits", "scores", "maps"])
def test_one_number_that_is_not_finite_is_refused(model, monkeypatch, name, bad):
    forward = type(model).forward

    def broken(self, images):
        output = forward(self, images)
        getattr(output, name)[(images == PIXELS[5]).flatten(1).all(1), 1] = bad
        return output

    monkeypatch.setattr(type(model), "forward", broken)
    observer = Observer(model, Upsample(), chunk=4, top_k=3)
    observer.see(IMAGES)
    with pytest.raises(ValueError, match=r"for the samples bird 5\. The checkpoint"):
        observer.refuse_broken()


@torch.inference_mode()
def test_what_is_seen(model):
    output = model(PIXELS)
    seen = Observer(model, Upsample(), chunk=7, top_k=3).see(IMAGES)
    assert torch.equal(seen.logits, output.logits)
    assert torch.equal(seen.unit_ids, top_units(output.scores, 3, model.units().active))
    assert torch.equal(seen.maps, gather_units(output.maps, seen.unit_ids))
    assert seen.saliency is None
    assert seen.all_maps is None
    other = torch.tensor([[5], [0], [1], [2], [3], [4], [6]])
    assert torch.equal(Observer(model, Upsample(), 2, 3).see(IMAGES, other).unit_ids, other)


@torch.inference_mode()
def test_a_class_explainer_explains_the_prediction(model):
    class Constant(Upsample):
        explains = frozenset({"class"})

        def _maps(self, model, asked):
            assert asked.kind == "class"
            return asked.ids[:, None, None].float().expand(-1, *asked.images.shape[2:])

    seen = Observer(model, Constant(), chunk=4, top_k=3).see(IMAGES, explain=True)
    assert seen.saliency.shape == (7, 1, 32, 32)
    assert torch.equal(seen.saliency[:, 0, 0, 0].long(), seen.logits.argmax(1))


def test_an_attack_stays_in_the_mask_and_lowers_the_score(model):
    observer = Observer(model, Upsample(), chunk=4, top_k=1)
    with torch.inference_mode():
        units = observer.see(IMAGES).unit_ids[:, 0]
        mask = torch.zeros(7, 1, 32, 32, dtype=torch.bool)
        mask[..., :16] = True
        epsilon = torch.full((3, 1, 1), 0.05)
        settings = Attack(epsilon, epsilon / 5, steps=5)
        attacked = observer.attack(IMAGES, units, mask, torch.zeros_like(PIXELS), settings)
        one = observer.attack(part([3]), units[3:4], mask[3:4], torch.zeros(1, 3, 32, 32), settings)
        before = observer.see(IMAGES, units[:, None]).scores.gather(1, units[:, None])
        after = observer.see(Images(attacked, IMAGES.keys, IMAGES.names), units[:, None]).scores.gather(
            1, units[:, None]
        )
    assert torch.equal(attacked[..., 16:], PIXELS[..., 16:])
    assert (attacked - PIXELS).abs().max() <= 0.05 + 1e-6
    assert (after <= before).all()
    assert (after < before).any()
    assert torch.equal(one[0], attacked[3])
    assert all(parameter.grad is None for parameter in model.parameters())


class Counted(nn.Module):
    """1,000 activations per image of 10 x 10 pixels in the leaf, and 100 in the maps."""

    def __init__(self):
        super().__init__()
        self.leaf = nn.Conv2d(3, 10, 1)

    def forward(self, images):
        latent = self.leaf(images)
        maps = latent[:, :1]
        return ModelOutput(maps.flatten(1), maps.amax((2, 3)), maps, latent)

    def units(self):
        return UnitTable("prototype", torch.ones(1, dtype=torch.bool), torch.ones(1, 100, dtype=torch.bool), "max")


@pytest.mark.parametrize(("images", "expected"), [(0.5, 1), (1, 1), (7.5, 4), (8.1, 8), (1000, 32)])
def test_the_budget_sets_the_images_per_forward(images, expected):
    budget = images * (1000 * 8 + 100 * 20) / 2**30
    chunk, output = images_per_forward(Counted().eval(), (10, 10), torch.device("cpu"), budget)
    assert chunk == expected
    assert output.latent.shape == (1, 10, 10, 10)


@pytest.mark.parametrize(
    ("device", "pixels", "expected"),
    [("cpu", 10, 32), ("cpu", 900, 8), ("meta", 10, 64), ("meta", 2000, 16)],  # 81 and 400 MB an image
)
def test_every_type_of_device_has_its_budget(device, pixels, expected):
    model = Counted().eval().to(device)
    assert images_per_forward(model, (pixels, pixels), torch.device(device))[0] == expected


def test_a_budget_that_the_gpu_does_not_have_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=6 * 2**30))
    with pytest.raises(ValueError, match=r"`memory_budget` to be at most the 6\.0 GiB of the GPU, but got 8\."):
        images_per_forward(Counted().eval(), (10, 10), torch.device("cuda"))
