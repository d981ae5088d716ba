"""Primitives and pixels: a golden list, label codes, points, and what occluders and poses hide."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from protometry.datamodules.bird_parts import LABEL_MAP_CODES, PARTS
from protometry.datamodules.sketch_birds.class_table import make_class_table
from protometry.datamodules.sketch_birds.render import Primitives, draw_image, draw_label_map, locate_points, primitives
from protometry.datamodules.sketch_birds.scene import Knobs, sample_scene

CLASSES = make_class_table(50, [range(len(names)) for names in PARTS.values()]).tolist()
SIZE = (128, 128)
# pixels of each code summed over 20 images of 128 px; another Pillow version may move them by 2 %
GOLDEN_HASH = "25a7bf701733fc41cab1dd8fe5facf386f9024e3de3da232825cda94fe879ad4"
GOLDEN_AREAS = {0: 269070, 1: 21874, 2: 2041, 3: 933, 4: 528, 5: 2843, 6: 2348, 7: 8701, 8: 778, 9: 4651}


def scene(i, **knobs):
    return sample_scene(0, "test", i, CLASSES, Knobs(**knobs))


def label_map(drawn, size=SIZE):
    return draw_label_map(primitives(drawn), size)


def test_golden_primitives():
    digest = hashlib.sha256()
    for i in range(20):
        for polygon, color, code in primitives(scene(i, occluders=0.5, contexts=3)):
            rounded = np.round(polygon, 6) + 0.0  # no negative zeros
            digest.update(rounded.astype("<f8").tobytes() + repr((color, code)).encode())
    assert digest.hexdigest() == GOLDEN_HASH


def test_golden_areas():
    counts = sum(np.bincount(label_map(scene(i)).ravel(), minlength=256) for i in range(20))
    for code, pixels in GOLDEN_AREAS.items():
        assert abs(counts[code] - pixels) <= 0.02 * pixels


def test_painters_order_and_codes():
    drawn = replace(next(s for s in map(scene, range(40)) if len(s.objects) == 2), profile=False)
    codes = list(dict.fromkeys(code for _, _, code in primitives(drawn)))
    assert codes == [32, 33, 9, 8, 6, 1, 5, 4, 2, 3, 7]
    occluded = scene(0, occluders=1.0)
    assert primitives(occluded).codes[-1] == 32 + len(occluded.objects) == occluded.occluder.code


def test_image_and_label_map_agree():
    # away from the edges of its regions, code 0 is the background colour and codes >= 1 never are
    for i in range(10):
        drawn = scene(i)
        codes, image = label_map(drawn), draw_image(drawn, primitives(drawn), SIZE)
        windows = np.lib.stride_tricks.sliding_window_view(codes, (3, 3))
        inner = windows.min(axis=(2, 3)) == windows.max(axis=(2, 3))
        is_background = (image[1:-1, 1:-1] == drawn.background).all(axis=-1)
        assert is_background[inner & (codes[1:-1, 1:-1] == 0)].all()
        assert not is_background[inner & (codes[1:-1, 1:-1] > 0)].any()


@pytest.mark.parametrize(("first", "last", "outlined"), [(1, 1, True), (32, 44, False)], ids=["body", "objects"])
def test_birds_have_outlines_and_objects_have_none(first, last, outlined):
    drawn = next(s for s in map(scene, range(40)) if len(s.objects) > 3)
    shown = [triple for triple in primitives(drawn) if first <= triple[2] <= last]
    polygons, colors, codes = zip(*shown, strict=True)
    layer = Primitives(np.concatenate(polygons), tuple(len(polygon) for polygon in polygons), colors, codes)
    image = draw_image(drawn, layer, SIZE).astype(int)
    darkest = min(sum(color) for color in (drawn.background, *colors))
    assert (image.sum(axis=-1) < darkest - 3).any() == outlined  # blending two colours makes none darker than both


def test_rectangular_frames_centre_the_scene():
    drawn = scene(2)
    square, wide = label_map(drawn, (64, 64)), label_map(drawn, (64, 96))
    assert (wide[:, 16:80] == square).all()


def test_visible_points_lie_on_their_codes():
    for i in range(30):
        codes = label_map(scene(i, occluders=0.5))
        points, visible = locate_points(scene(i, occluders=0.5), codes)
        assert points.dtype == np.float32
        assert (points[~visible] == 0).all()
        x, y = np.floor(points[visible]).astype(int).T
        assert ((codes[y, x] >= 1) & (codes[y, x] <= 9)).all()


def test_points_outside_the_frame_are_invisible():
    drawn = replace(scene(0), shift=(2.5, 0.0))
    points, visible = locate_points(drawn, label_map(drawn))
    assert not visible.any()
    assert (points == 0).all()


def test_almost_all_points_visible_in_random_poses():
    seen = np.mean([locate_points(d, label_map(d))[1] for d in (scene(i, profile=0.0) for i in range(200))], axis=0)
    assert seen.mean() >= 0.99
    assert seen.min() >= 0.97  # one point in 200 images has sd .007 at .99


def test_every_part_visible_without_occluder():
    for i in range(200):
        counts = np.bincount(label_map(scene(i)).ravel(), minlength=256)
        assert all(counts[list(codes)].any() for codes in LABEL_MAP_CODES.values())


def test_occlusion_statistics():
    # share of images in which a part has no visible pixel; 3 sd of a share of .15 at n = 300 is .06
    hidden, points = dict.fromkeys(LABEL_MAP_CODES, 0.0), []
    for i in range(300):
        drawn = scene(i, occluders=1.0, profile=0.0)
        codes = label_map(drawn)
        counts = np.bincount(codes.ravel(), minlength=256)
        points.append(locate_points(drawn, codes)[1].mean())
        for part, part_codes in LABEL_MAP_CODES.items():
            hidden[part] += (not counts[list(part_codes)].any()) / 300
    expected = {"body": 0.0, "beak": 0.15, "eye": 0.13, "tail": 0.045, "wing": 0.018, "foot": 0.013}
    assert (hidden, np.mean(points)) == (pytest.approx(expected, abs=0.06), pytest.approx(0.8, abs=0.03))
