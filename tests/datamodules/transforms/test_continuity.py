"""The continuity view: each step by hand, a golden hash, and that nothing but its arguments decides."""

import colorsys
import hashlib
import io
import math
import warnings

import albumentations as A
import numpy as np
import pytest
import torch
from PIL import Image

from protometry.datamodules.transforms.continuity import codec_versions, colour_steps, continuity_view, damage_steps

COLOUR = ("brightness", "contrast", "saturation", "hue")
DAMAGE = ("noise", "blur", "jpeg")


def picture(side=16):
    """Smooth and colourful, without clipped pixels: (H, W, 3) float32."""
    rows, columns = np.mgrid[:side, :side] / (side - 1)
    image = np.stack([0.2 + 0.5 * rows, 0.25 + 0.4 * columns, 0.3 + 0.3 * rows * columns], axis=-1)
    return image.astype(np.float32)


def tensor(image):
    return torch.from_numpy(image.transpose(2, 0, 1).copy())


def step(name, variant="paper"):
    steps = dict(zip(COLOUR + DAMAGE, colour_steps() + damage_steps(variant), strict=True))
    return A.Compose([steps[name]], strict=True, seed=3)


def grey(image):
    return image @ np.array([0.299, 0.587, 0.114])


def through_pillow(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg", quality=90)
    return np.asarray(Image.open(file)).astype(np.float64)


class TestSteps:
    def test_order_and_parameters(self):
        off = {"brightness": (1.0, 1.0), "contrast": (1.0, 1.0), "saturation": (1.0, 1.0), "hue": (0.0, 0.0), "p": 1.0}
        noise = {"mean_range": (0.0, 0.0), "per_channel": True, "noise_scale_factor": 1.0, "p": 1.0}
        expected = [
            ("ColorJitter", off | {"brightness": (1.125, 1.125)}), ("ColorJitter", off | {"contrast": (1.125, 1.125)}),
            ("ColorJitter", off | {"saturation": (1.125, 1.125)}), ("ColorJitter", off | {"hue": (0.05, 0.05)}),
            ("GaussNoise", noise | {"std_range": (0.05, 0.05)}), ("Blur", {"blur_limit": (3, 3), "p": 1.0}),
            ("ImageCompression", {"compression_type": "jpeg", "quality_range": (90, 90), "p": 1.0}),
        ]  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            steps = colour_steps() + damage_steps("paper")
        assert [(type(step).__name__, step.get_transform_init_args()) for step in steps] == expected
        published = damage_steps("quanproto")
        sd = math.sqrt(5) / 255
        assert published[0].get_transform_init_args() == noise | {"std_range": (sd, sd)}
        assert [s.get_transform_init_args() for s in published[1:]] == [args for _, args in expected[5:]]

    @pytest.mark.parametrize("name", COLOUR)
    def test_colours_by_their_formulas(self, name):
        def turned(pixel):
            hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
            return colorsys.hsv_to_rgb((hue + 0.05) % 1, saturation, value)

        rest = {"brightness": 0.0, "contrast": grey(picture()).mean(), "saturation": grey(picture())[..., None]}
        expected = (
            np.apply_along_axis(turned, -1, picture())
            if name == "hue"
            else rest[name] + 1.125 * (picture() - rest[name])
        )
        assert step(name)(image=picture())["image"] == pytest.approx(expected, abs=1e-4)

    @pytest.mark.parametrize(("variant", "sd"), [("paper", 0.05), ("quanproto", 0.0087689)])
    def test_noise(self, variant, sd):
        clean = np.full((200, 200, 3), 0.5, np.float32)
        noise = (step("noise", variant)(image=clean)["image"] - clean).reshape(-1, 3)
        # 120 000 draws: five standard errors
        assert noise.std() == pytest.approx(sd, rel=0.01)
        assert abs(noise.mean()) < 5 * sd / 346
        assert abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.025

    def test_blur(self):
        padded = np.pad(picture(), ((1, 1), (1, 1), (0, 0)), mode="reflect")
        expected = sum(padded[r : r + 16, c : c + 16] for r in range(3) for c in range(3)) / 9
        assert step("blur")(image=picture())["image"] == pytest.approx(expected, abs=1e-6)

    def test_jpeg_is_that_of_the_picture_in_its_true_colours(self):
        # Pillow takes RGB; other codec versions may round otherwise
        noisy = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
        smooth = (picture(32) * 255).round().astype(np.uint8)
        for pixels, wrong in ((noisy, 5), (smooth, 0.1)):
            result = step("jpeg")(image=np.ascontiguousarray(pixels[..., ::-1]).astype(np.float32) / 255)["image"]
            expected = through_pillow(pixels)
            assert np.abs(result[..., ::-1] * 255 - expected).mean() < 0.5
            red_for_blue = step("jpeg")(image=pixels.astype(np.float32) / 255)["image"]
            assert np.abs(red_for_blue * 255 - expected).mean() > wrong


class TestView:
    def test_is_the_steps_in_order(self):
        smooth = tensor(picture(64))
        image = picture(64)
        for name in (*COLOUR, "blur"):
            image = step(name)(image=image)["image"]
        view = continuity_view(smooth, 5, variant="quanproto").numpy().transpose(1, 2, 0)
        # noise of 0.0088 over nine pixels and JPEG of a smooth picture: about 0.01
        assert np.abs(view - image).mean() < 0.02
        assert np.abs(view - picture(64)).mean() > 0.05

    def test_golden_hash_before_jpeg(self):
        # eight bits are what enters the codec; any change of a factor, an order or the noise shows here
        colour = A.Compose(colour_steps(), strict=True)
        damage = A.Compose(damage_steps("paper")[:-1], strict=True)
        damage.set_random_seed(11)
        pixels = np.rint(damage(image=colour(image=picture())["image"])["image"] * 255).astype(np.uint8)
        digest = hashlib.sha256(pixels.tobytes()).hexdigest()
        assert digest == "ad26c3027a5f80cb1fe6b788ce17cefbd5b74e3a81f87e495e2019de076b79b9"

    def test_golden_values(self):
        view = continuity_view(tensor(picture()), 7748076420210162913, seed=5)
        expected = [[0.537, 0.537, 0.51, 0.482], [0.302, 0.431, 0.549, 0.678], [0.259, 0.357, 0.404, 0.478]]
        assert view[:, 8, ::4].numpy() == pytest.approx(np.array(expected), abs=0.02)  # codecs round in their own way

    def test_range_dtype_and_input_unchanged(self):
        image = torch.rand(3, 20, 30, generator=torch.Generator().manual_seed(0))
        before = image.clone()
        view = continuity_view(image, 1)
        assert (view.shape, view.dtype) == (image.shape, torch.float32)
        assert view.is_contiguous()
        assert 0 <= view.min() < view.max() <= 1
        assert torch.equal(image, before)

    def test_identity_is_the_image(self):
        image = tensor(picture())
        assert continuity_view(image, 1, variant="identity") is image

    def test_pure_function_of_key_and_seed(self):
        image = tensor(picture())
        first = continuity_view(image, 7, seed=1)
        np.random.seed(0)
        torch.manual_seed(0)
        continuity_view(image, 8)
        assert torch.equal(continuity_view(image, 7, seed=1), first)
        others = [(7, 0, "paper"), (8, 1, "paper"), (1, 7, "paper"), (7, 1, "quanproto"), (2**63 - 1, 1, "paper")]
        views = [first] + [continuity_view(image, key, seed, variant) for key, seed, variant in others]
        assert len({view.numpy().tobytes() for view in views}) == 6

    def test_layout_does_not_matter(self):
        image = tensor(picture())
        assert torch.equal(continuity_view(image.mT.contiguous().mT, 1), continuity_view(image, 1))

    @pytest.mark.parametrize(("arguments", "match"), [
        ({"variant": "strong"}, r"`variant` to be one of \['paper', 'quanproto', 'identity'\], but got 'strong'"),
        ({"seed": -1}, "`seed` to be at least 0, but got -1"),
        ({"image": torch.zeros(4, 8, 8)}, r"`image` to be of shape \(3, H, W\) .* got \(4, 8, 8\)"),
        ({"image": torch.zeros(1, 3, 8, 8)}, r"`image` to be of shape \(3, H, W\)"),
        ({"image": torch.zeros(3, 8, 8, dtype=torch.uint8)}, "dtype float32, but got .* torch.uint8"),
    ])  # fmt: skip
    def test_errors(self, arguments, match):
        with pytest.raises(ValueError, match=match):
            continuity_view(**{"image": torch.zeros(3, 8, 8), "sample_key": 1, **arguments})

    def test_versions(self, monkeypatch):
        versions = codec_versions()
        assert versions["albumentations"] == A.__version__
        assert all(isinstance(text, str) and text for text in versions.values())
        monkeypatch.setattr("cv2.getBuildInformation", lambda: "  JPEG:   NO\n  JPEG 2000:  build (ver 2)")
        with pytest.raises(ValueError, match="OpenCV to be built with JPEG"):
            codec_versions()
