import math
import warnings

import albumentations as A
import cv2
import numpy as np
import pytest

from protometry.datamodules.transforms.crop_and_augment import (
    Photo,
    PhotoTransform,
    augmentation_steps,
    transform_seed,
)
from protometry.datamodules.transforms.placement import clipped_boxes, inclusive_boxes, place, placed_boxes

GEOMETRIES = ("stretch", "letterbox", "shorter_crop", "center_crop")
AUGMENTATIONS = ("geometric", "photometric", "geometric_photometric")


def noise(height=60, width=90, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def annotated(height=60, width=90):
    """A white square of 9 pixels around (40, 20) that is also mask, label 7, box and first point."""
    image = np.zeros((height, width, 3), np.uint8)
    mask = np.zeros((height, width), bool)
    mask[16:25, 36:45] = True
    image[mask] = 255
    points = np.array([[40.5, 20.5], [0, 0], [89.5, 59.5]], np.float32)
    visible = np.array([True, False, True])
    box = np.array([36, 16, 44, 24], np.float32)
    return Photo(image, mask, mask.astype(np.uint8) * 7, points, visible, box)


class TestGeometry:
    @pytest.mark.parametrize("geometry", GEOMETRIES)
    @pytest.mark.parametrize("crop", ["none", "box"])
    @pytest.mark.parametrize("size", [(48, 48), (32, 64)])
    def test_everything_moves_together(self, geometry, crop, size):
        photo = PhotoTransform(size, geometry, crop)(annotated())
        assert photo.image.shape == (*size, 3)
        assert photo.object_mask.shape == photo.label_map.shape == size
        assert (photo.label_map == 7 * photo.object_mask).all()
        assert photo.visible[0]
        x, y = photo.points[0].astype(int)
        assert photo.object_mask[y, x]
        assert (photo.image[y, x] > 200).all()
        rows, columns = np.nonzero(photo.object_mask)
        tight = [columns.min(), rows.min(), columns.max(), rows.max()]
        assert np.abs(photo.box - tight).max() <= 1  # the box rounds outwards, the mask to the nearest pixel

    def test_stretch_by_hand(self):
        # 90x60 -> 45x30: half in both directions
        photo = PhotoTransform((30, 45))(annotated())
        np.testing.assert_allclose(photo.points, [[20.25, 10.25], [0, 0], [44.75, 29.75]], atol=1e-5)
        assert photo.visible.tolist() == [True, False, True]
        assert photo.box.tolist() == [18, 8, 22, 12]  # floor(36/2), floor(16/2), ceil(45/2)-1, ceil(25/2)-1

    @pytest.mark.parametrize("geometry", ["center_crop", "shorter_crop"])
    def test_box_outside_the_frame(self, geometry):
        # the frame shows columns 15..74 of 90 in either way
        def boxed(x0, x1):
            photo = Photo(noise(), box=np.array([x0, 20, x1, 29], np.float32))
            return PhotoTransform((60, 60), geometry)(photo).box.tolist()

        assert (boxed(9, 15), boxed(74, 80)) == ([0, 20, 0, 29], [59, 20, 59, 29])
        for x0, x1 in ((9, 14), (75, 80)):
            with pytest.raises(ValueError, match=f"{x0} 20 {x1} 29 to reach .* `geometry: stretch` or `crop: box`"):
                boxed(x0, x1)

    def test_the_lost_box_of_several_is_named(self):
        placements = [place((60, 90), (60, 60), "center_crop")] * 2
        boxes = np.array([[20, 20, 29, 29], [80, 20, 89, 29]], np.float32)
        with pytest.raises(ValueError, match=r"^second.jpg: Expected the box 80 20 89 29 to reach"):
            placed_boxes(boxes, placements, ["first.jpg", "second.jpg"])

    def test_box_crop_by_hand(self):
        image = noise()
        points = np.array([[10.5, 20.5], [9.5, 20.5], [29.5, 39.5], [30.0, 30.0]], np.float32)
        box = np.array([10, 20, 29, 39], np.float32)
        photo = PhotoTransform((20, 20), crop="box")(Photo(image, points=points, visible=np.ones(4, bool), box=box))
        np.testing.assert_array_equal(photo.image, image[20:40, 10:30])
        assert photo.visible.tolist() == [True, False, True, False]
        np.testing.assert_allclose(photo.points, [[0.5, 0.5], [0, 0], [19.5, 19.5], [0, 0]])
        assert photo.box.tolist() == [0, 0, 19, 19]

    def test_box_follows_the_rule_for_many_sizes(self):
        generator = np.random.default_rng(0)
        for _ in range(60):
            width, height = generator.integers(20, 500, 2)
            x0, x1 = np.sort(generator.integers(0, width, 2))
            y0, y1 = np.sort(generator.integers(0, height, 2))
            photo = Photo(np.zeros((height, width, 3), np.uint8), box=np.array([x0, y0, x1, y1], np.float32))
            box = PhotoTransform((32, 48))(photo).box
            # exact integer arithmetic: floor(x W'/W) and ceil((x + 1) W'/W) - 1
            assert (box[0], box[1]) == (int(x0) * 48 // int(width), int(y0) * 32 // int(height))
            assert box[2] == -(-(int(x1) + 1) * 48 // int(width)) - 1
            assert box[3] == -(-(int(y1) + 1) * 32 // int(height)) - 1

    def test_points_outside_keep_their_row(self):
        points = np.array([[200, 5], [5, 5], [-3, 5]], np.float32)
        photo = PhotoTransform((60, 90))(Photo(noise(), points=points, visible=np.ones(3, bool)))
        assert (photo.visible.tolist(), photo.points.tolist()) == ([False, True, False], [[0, 0], [5, 5], [0, 0]])

    def test_crop_without_box(self):
        with pytest.raises(ValueError, match="to have a box because `crop` is 'box'"):
            PhotoTransform((8, 8), crop="box")(Photo(noise()))

    @pytest.mark.parametrize("name", ["geometry", "crop", "variant", "augmentation"])
    def test_unknown_names(self, name):
        with pytest.raises(ValueError, match=f"`{name}` to be one of .* but got 'other'"):
            PhotoTransform((8, 8), **{name: "other"})


class TestAugmentation:
    @pytest.mark.parametrize("augmentation", AUGMENTATIONS)
    def test_seed_decides(self, augmentation):
        transform = PhotoTransform((48, 48), augmentation=augmentation)
        first, second, other = (transform(annotated(), seed).image for seed in (5, 5, 6))
        np.testing.assert_array_equal(first, second)
        assert (first != other).any()

    def test_global_random_state_does_not_matter(self):
        transform = PhotoTransform((48, 48), augmentation="geometric_photometric")
        np.random.seed(0)
        first = transform(Photo(noise()), 1).image
        np.random.seed(1)
        np.testing.assert_array_equal(first, transform(Photo(noise()), 1).image)

    def test_only_the_image_remains(self):
        photo = PhotoTransform((48, 48), augmentation="photometric")(annotated(), 0)
        assert photo.points is photo.box is photo.object_mask is photo.label_map is photo.visible is None

    def test_photometric_moves_nothing(self):
        photo = annotated()
        changed = PhotoTransform((60, 90), augmentation="photometric")(photo, 3).image
        np.testing.assert_array_equal(changed.max(axis=2) > 128, photo.object_mask)

    def test_geometric_keeps_colours_and_leaves_no_border(self):
        changed = PhotoTransform((48, 48), augmentation="geometric")(Photo(np.full((60, 60, 3), 77, np.uint8)), 3)
        assert (changed.image == 77).all()

    def test_half_of_the_draws_are_flipped(self):
        image = np.zeros((48, 48, 3), np.uint8)
        image[:, :24] = 255
        transform = PhotoTransform((48, 48), augmentation="geometric")
        left = [transform(Photo(image), seed).image[:, :12].mean() > 128 for seed in range(200)]
        assert 75 <= sum(left) <= 125

    def test_without_seed(self):
        with pytest.raises(ValueError, match="`seed` to be an integer because augmentation is on"):
            PhotoTransform((8, 8), augmentation="geometric")(Photo(noise()))

    def test_box_crop_comes_first(self):
        image = np.zeros((60, 90, 3), np.uint8)
        image[16:25, 36:45] = 200
        photo = PhotoTransform((16, 16), crop="box", augmentation="geometric")(
            Photo(image, box=np.array([36, 16, 44, 24], np.float32)), 0
        )
        assert (photo.image == 200).all()


# every argument of every random step: the requested ones, and the defaults that must not change unnoticed
FLIP = ("HorizontalFlip", {"p": 0.5})
WARP = {
    **{"border_mode": cv2.BORDER_REPLICATE, "fill": 0.0, "fill_mask": 0.0, "fit_output": False},
    **{"interpolation": cv2.INTER_LINEAR, "mask_interpolation": cv2.INTER_NEAREST},
}
PERSPECTIVE = ("Perspective", WARP | {"scale": (0.0, 0.05), "keep_size": True, "p": 0.5})
AFFINE = (
    "Affine",
    WARP
    | {
        "scale": {"x": (0.85, 1.15), "y": (0.85, 1.15)},
        "translate_percent": {"x": (-0.15, 0.15), "y": (-0.15, 0.15)},
        "rotate": (-15.0, 15.0),
        "shear": {"x": (-15.0, 15.0), "y": (-15.0, 15.0)},
        "rotate_method": "ellipse",
        "translate_px": None,
        "keep_ratio": False,
        "balanced_scale": False,
        "p": 1.0,
    },
)
FACTORS = dict.fromkeys(("brightness", "contrast", "saturation"), (0.85, 1.15))
JITTER = ("ColorJitter", FACTORS | {"hue": (-0.025, 0.025), "p": 1.0})
STEPS = {
    "none": [],
    "geometric": [FLIP, PERSPECTIVE, AFFINE],
    "photometric": [JITTER],
    "geometric_photometric": [FLIP, PERSPECTIVE, AFFINE, JITTER],
}


class TestArguments:
    """albumentations replaces what it does not know by defaults, so what it holds is compared with what was asked."""

    @pytest.mark.parametrize("augmentation", STEPS)
    def test_nothing_is_ignored(self, augmentation):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            steps = augmentation_steps(augmentation)
            compose = PhotoTransform((32, 48), augmentation=augmentation)._compose
        for result in (steps, compose.transforms if compose else []):
            assert [(type(step).__name__, step.get_transform_init_args()) for step in result] == STEPS[augmentation]

    def test_the_published_warps_have_another_border_and_always_a_perspective(self):
        wrapped = {"border_mode": cv2.BORDER_WRAP, "p": 1.0}
        steps = PhotoTransform((32, 48), augmentation="geometric", variant="quanproto")._compose.transforms
        result = [(type(step).__name__, step.get_transform_init_args()) for step in steps]
        assert result == [FLIP, *((name, arguments | wrapped) for name, arguments in (PERSPECTIVE, AFFINE))]

    def test_compose_is_strict(self):
        compose = PhotoTransform((8, 8), augmentation="geometric")._compose
        assert compose.strict
        with pytest.raises(ValueError, match="other"):
            compose(image=noise(), other=np.zeros((60, 90)))
        with pytest.warns(UserWarning, match="value"), pytest.raises(ValueError, match="value"):
            A.Compose([A.PadIfNeeded(value=3, p=1.0)], strict=True)


def effect(step, image, **changes):
    """What one step of a preset does to an image, with some of its arguments fixed."""
    name, arguments = step
    arguments = {key: value for key, value in arguments.items() if value is not None} | {"p": 1.0} | changes
    pipeline = A.Compose([getattr(A, name)(**arguments)], strict=True)
    pipeline.set_random_seed(0)
    return pipeline(image=image)["image"]


def square(side=64):
    image = np.zeros((side, side, 3), np.uint8)
    image[24:40, 24:40] = (200, 120, 60)
    return image


def centre_and_area(image):
    rows, columns = np.nonzero(image.max(axis=2) > 30)
    return columns.mean(), rows.mean(), image[..., 0].sum() / 200


STILL = {"scale": 1.0, "rotate": 0.0, "translate_percent": {"x": 0, "y": 0}, "shear": {"x": 0, "y": 0}}


class TestEffects:
    """Each argument does what its name says; the others are put to rest."""

    def affine(self, **changes):
        return effect(AFFINE, square(), **(STILL | changes))

    def test_at_rest(self):
        np.testing.assert_array_equal(self.affine(), square())
        np.testing.assert_array_equal(effect(JITTER, square(), **dict.fromkeys(FACTORS, (1, 1)), hue=(0, 0)), square())
        np.testing.assert_array_equal(effect(PERSPECTIVE, square(), scale=(0, 0)), square())

    @pytest.mark.parametrize("scale", [0.85, 1.15])
    def test_scale(self, scale):
        assert centre_and_area(self.affine(scale=scale))[2] == pytest.approx((16 * scale) ** 2, rel=0.05)

    def test_translation(self):
        moved = self.affine(translate_percent={"x": (0.15, 0.15), "y": (-0.15, -0.15)})
        # 15 % of 64 pixels are 9, as albumentations cuts 9.6 to whole pixels; the square's centre lies at 31.5
        assert centre_and_area(moved)[:2] == (40.5, 22.5)

    @pytest.mark.parametrize(
        ("changes", "axes"), [({"rotate": (15.0, 15.0)}, 1), ({"shear": {"x": (15.0, 15.0), "y": (0.0, 0.0)}}, -1)]
    )
    def test_angles(self, changes, axes):
        image = np.zeros((64, 64, 3), np.uint8)
        image[31:33, 12:52] = 255  # a line that the rotation turns, and its transpose that the shear tilts
        moved = effect(AFFINE, image if axes == 1 else image.transpose(1, 0, 2).copy(), **(STILL | changes))
        rows, columns = np.nonzero(moved[..., 0] > 100)[::axes]
        assert abs(np.polyfit(columns, rows, 1)[0]) == pytest.approx(np.tan(np.radians(15)), abs=0.03)

    def test_wrapped_border(self):
        """What leaves the frame on the right comes back on the left."""
        image = np.zeros((64, 64, 3), np.uint8)
        image[:, 60:] = 255
        moved = STILL | {"translate_percent": {"x": 0.125, "y": 0.0}}  # 8 of 64 pixels
        assert effect(AFFINE, image, **moved).max() == 0  # the left edge, replicated
        wrapped = effect(AFFINE, image, **moved, border_mode=cv2.BORDER_WRAP)
        assert (wrapped[:, 4:8] == 255).all()
        assert wrapped[:, 9:].max() == 0

    @pytest.mark.parametrize("name", FACTORS)
    def test_factors(self, name):
        rest = dict.fromkeys(FACTORS, (1.0, 1.0)) | {"hue": (0.0, 0.0)}
        image = noise(seed=1) // 2 + 40  # far from black and white, where values would be cut
        changed = effect(JITTER, image, **(rest | {name: (1.15, 1.15)})).astype(float)
        grey = image @ np.array([0.299, 0.587, 0.114])
        start = {"brightness": 0.0, "contrast": grey.mean(), "saturation": grey[..., None]}[name]
        assert np.abs(changed - (start + 1.15 * (image - start))).max() <= 2

    def test_hue(self):
        rest = dict.fromkeys(FACTORS, (1.0, 1.0))
        red = np.full((4, 4, 3), (200, 0, 0), np.uint8)
        changed = effect(JITTER, red, **rest, hue=(0.025, 0.025))
        hue = cv2.cvtColor(changed, cv2.COLOR_RGB2HSV)[0, 0, 0]
        assert hue == pytest.approx(0.025 * 180, abs=1)  # OpenCV counts half degrees


def test_boxes_become_inclusive_pixels_and_are_clipped():
    # x -0.5..10.2 in a frame 10 wide; y 3.9..5.0
    box = inclusive_boxes(np.array([[-0.5, 3.9, 10.2, 5.0]]))
    assert (box.tolist(), clipped_boxes(box[0], (8, 10)).tolist()) == ([[-1, 3, 10, 4]], [0, 3, 9, 4])


def test_transform_seed_is_the_same_everywhere():
    keys = [(0, 0, 1), (1, 0, 1), (0, 1, 1), (0, 0, 2), (0, 0, 2**63 - 1), (0, 0, 1, 0), (0, 0, 1, 1), (0, 0, 1, 2)]
    seeds = {transform_seed(*key) for key in keys}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert math.isclose(np.mean([transform_seed(0, 0, key) for key in range(500)]) / 2**32, 0.5, abs_tol=0.05)
