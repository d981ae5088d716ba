"""The parts bank: index rule, names, and anchors that lie on their parts."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from protometry.datamodules.bird_parts import PARTS, shape_and_color
from protometry.datamodules.sketch_birds import bank
from protometry.datamodules.sketch_birds.render import draw_label_map, locate_points, primitives
from protometry.datamodules.sketch_birds.scene import Knobs, sample_scene
from tests.cub_tree import PARTS as CUB_PARTS

UPRIGHT = replace(
    sample_scene(0, "test", 0, [(0, 0, 0, 0, 0)], Knobs()),
    matrix=((0.77, 0.0), (0.0, 0.77)),
    shift=(0.0, 0.0),
    objects=(),
    profile=False,
)


def test_index_rule_shape_then_color():
    assert np.prod([len(names) for names in PARTS.values()]) == 2592
    # tail 7 = shape 1 + 3 * colour 2 (blue); wing 5 = shape 1 + 2 * colour 2 (blue)
    assert (PARTS["tail"][7], shape_and_color("tail", 7)) == ("blue fork", (1, 2))
    assert (PARTS["wing"][5], shape_and_color("wing", 5)) == ("blue feathers", (1, 2))


def test_points_are_named_and_ordered_as_in_cub():
    assert (",".join(bank.POINT_NAMES), len(bank.POINT_GROUPS)) == (CUB_PARTS, 12)
    assert bank.POINT_GROUPS[bank.PART_TO_GROUP["foot"]] == "leg"


@pytest.mark.parametrize("side", [1, -1], ids=["right", "left"])
def test_all_points_visible_upright_for_all_288_shape_combinations(side):
    for shapes in product(range(4), range(3), range(4), range(3), range(2)):
        scene = replace(UPRIGHT, variants=shapes, matrix=((0.77 * side, 0.0), (0.0, 0.77)))
        _, visible = locate_points(scene, draw_label_map(primitives(scene), (128, 128)))
        assert visible.all(), (shapes, [n for n, v in zip(bank.POINT_NAMES, visible, strict=True) if not v])


def test_near_side_is_right_when_facing_right_and_left_when_flipped():
    name = bank.POINT_NAMES.index
    right, right_codes = bank.anchors((0, 0, 0, 0, 0), True)
    left, left_codes = bank.anchors((0, 0, 0, 0, 0), False)
    for part, near, far in (("eye", 3, 4), ("leg", 5, 6), ("wing", 7, 8)):
        assert (right_codes[name(f"right {part}")], right_codes[name(f"left {part}")]) == (near, far)
        assert (left_codes[name(f"left {part}")], left_codes[name(f"right {part}")]) == (near, far)
        np.testing.assert_array_equal(right[name(f"right {part}")], left[name(f"left {part}")])


def test_profile_hides_far_eye_and_far_wing_only():
    scene = replace(UPRIGHT, profile=True)
    _, visible = locate_points(scene, draw_label_map(primitives(scene), (128, 128)))
    hidden = {n for n, v in zip(bank.POINT_NAMES, visible, strict=True) if not v}
    assert hidden == {"left eye", "left wing"}


def test_parts_lie_where_they_belong():
    label_map = draw_label_map(primitives(UPRIGHT), (128, 128))
    centre = {code: np.argwhere(label_map == code).mean(axis=0) for code in (1, 2, 3, 5, 7, 9)}
    body_row, body_column = centre[1]
    assert centre[2][1] > centre[3][1] > body_column > centre[9][1]  # beak before eye before body before tail
    assert centre[3][0] < body_row < centre[5][0]  # eye above body above foot
