"""Scenes: reproducible, independent of the knobs, drawn from the stated distributions; edits and their errors."""

from dataclasses import replace

import numpy as np
import pytest

from protometry.datamodules.sketch_birds.intervention import changed_scene
from protometry.datamodules.sketch_birds.scene import Knobs, kept_parts, sample_scene

CLASSES = [(0, 0, 0, 0, 0), (1, 1, 1, 1, 1), (2, 2, 2, 2, 2)]


def scenes(n, split="test", seed=0, **knobs):
    return [sample_scene(seed, split, i, CLASSES, Knobs(**knobs)) for i in range(n)]


def test_same_arguments_same_scene_and_every_argument_matters():
    assert scenes(5) == scenes(5)
    assert sample_scene(0, "test", 3, CLASSES, Knobs()) != sample_scene(1, "test", 3, CLASSES, Knobs())
    assert sample_scene(0, "test", 3, CLASSES, Knobs()) != sample_scene(0, "val", 3, CLASSES, Knobs())
    assert scenes(4)[0].matrix != scenes(4)[3].matrix


@pytest.mark.parametrize(("knob", "fields"), [
    ({"part_removal": 1.0}, {"kept"}), ({"contexts": 5, "context_correlation": 0.5}, {"context", "background"}),
    ({"occluders": 1.0}, {"occluder"}), ({"profile": 1.0}, {"profile"}),
])  # fmt: skip
def test_a_knob_changes_its_own_fields_only(knob, fields):
    changed = set()
    for plain, other in zip(scenes(30), scenes(30, **knob), strict=True):
        changed |= {name for name in vars(plain) if getattr(plain, name) != getattr(other, name)}
    assert changed == fields


def test_pose_ranges_and_object_counts():
    drawn = scenes(400)
    for scene in drawn:
        (a, b), (c, d) = scene.matrix
        scale = np.hypot(b, d)
        squeeze = np.hypot(a, c) / scale
        assert 0.62 <= scale <= 0.92
        assert 0.75 - 1e-9 <= squeeze <= 1 + 1e-9
        assert abs(np.degrees(np.arctan2(-b, d))) <= 26
        assert max(abs(s) for s in scene.shift) <= 0.18
        assert 150 <= scene.grey <= 210
        assert all(0.05 <= thing.half_size <= 0.18 for thing in scene.objects)
        assert [thing.code for thing in scene.objects] == list(range(32, 32 + len(scene.objects)))
    assert {len(scene.objects) for scene in drawn} == set(range(13))
    assert 0.4 < np.mean([scene.facing_right for scene in drawn]) < 0.6  # sd .025


def test_part_removal_rate():
    # half of the images lose k ~ U{0..5}: 1/2 + 1/12 are complete, 1/12 for each k > 0 (sd .009 at n = 3,000)
    removed = [5 - sum(kept_parts(u, 0.5)) for u in np.random.default_rng(0).random((3000, 7)).tolist()]
    shares = np.bincount(removed, minlength=6) / 3000
    np.testing.assert_allclose(shares, [7 / 12, *[1 / 12] * 5], atol=0.03)


def test_every_part_is_removed_equally_often():
    kept = np.array([kept_parts(u, 1.0) for u in np.random.default_rng(1).random((3000, 7)).tolist()])
    np.testing.assert_allclose(kept.mean(axis=0), 0.5, atol=0.04)


def test_context_correlation():
    # p(preferred) = (1 - rho) / n + rho = .05 + .8 = .85 for n = 4, rho = .8 (sd .018 at n = 400)
    drawn = scenes(400, contexts=4, context_correlation=0.8)
    assert abs(np.mean([scene.context == scene.label % 4 for scene in drawn]) - 0.85) < 0.06
    anti = scenes(100, contexts=4, context_correlation=1.0, context_offset=2)
    assert all(scene.context == (scene.label + 2) % 4 for scene in anti)
    uniform = np.bincount([scene.context for scene in scenes(400, contexts=4)], minlength=4) / 400
    np.testing.assert_allclose(uniform, 0.25, atol=0.075)


def test_context_colors_differ_by_hue_and_the_default_is_fixed():
    assert {scene.background for scene in scenes(20)} == {(85, 85, 153)}
    hues = {0: set(), 1: set(), 2: set()}
    for scene in scenes(60, contexts=3):
        hues[scene.context].add(int(np.argmax(scene.background)))
    assert hues == {0: {0}, 1: {1}, 2: {2}}  # red, green, blue dominate


@pytest.mark.parametrize("knob", [
    {"part_removal": 1.1}, {"occluders": -0.1}, {"profile": 2.0}, {"context_correlation": -1.0}, {"contexts": -1},
])  # fmt: skip
def test_numbers_are_checked(knob):
    with pytest.raises(ValueError, match=f"Expected argument `{next(iter(knob))}` to be"):
        Knobs(**knob)


def test_edit_without_arguments_is_the_same_scene():
    for scene in scenes(10, occluders=0.5):
        assert changed_scene(scene) == scene


def test_edits_change_what_they_name():
    scene = next(scene for scene in scenes(40) if len(scene.objects) >= 3)
    changed = changed_scene(
        scene,
        drop=["tail"],
        drop_background=[1],
        background=(1, 2, 3),
        swap={"beak": 3},
        pose=([[0.5, 0], [0, 0.5]], [0.1, 0]),
    )
    assert changed == replace(
        scene,
        variants=(3, *scene.variants[1:]),
        kept=(True, True, True, False, True),
        background=(1, 2, 3),
        matrix=((0.5, 0.0), (0.0, 0.5)),
        shift=(0.1, 0.0),
        objects=(scene.objects[0], *scene.objects[2:]),
    )


@pytest.mark.parametrize(("change", "match"), [
    ({"drop": ["head"]}, "`drop` to name parts present.*'head'"),
    ({"drop": ["tail"]}, "`drop` to name parts present.*'tail'"),
    ({"swap": {"tail": 0}}, "`swap` to name parts present.*'tail'"),
    ({"swap": {"beak": 4}}, "`swap` to be below 4 for beak, but got 4"),
    ({"drop_background": [99]}, "`drop_background` to hold indices below .* but got 99"),
    ({"drop_background": [-1]}, "`drop_background` to hold indices below .* but got -1"),
    ({"background": (0, 0, 256)}, "`background` to be three values in 0..255"),
])  # fmt: skip
def test_edit_errors(change, match):
    scene = replace(scenes(1)[0], kept=(True, True, True, False, True))
    with pytest.raises(ValueError, match=match):
        changed_scene(scene, **change)
