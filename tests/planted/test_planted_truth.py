"""Planted truth: models and explainers for which the value of every metric is known; see ``expectation``."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
import torch

from protometry.explanations import PRP, Upsample
from protometry.explanations.random_maps import Random
from protometry.metrics.suite import FAMILIES
from tests.planted import changes  # noqa: F401 - registers expectations
from tests.planted.expectation import CHANGES, DRAWN, FAMILY_NAMES, SLOTS, TRUTH
from tests.planted.models import CleverHans, ColourUnits, HashUnits, Planted, measure
from tests.planted.places import misalignment
from tests.planted.scenes import (
    IMAGES,
    MARGIN,
    NEUTRAL,
    PART_COLOURS,
    SHIFT,
    SPOT_COLOURS,
    birds,
    brighter,
    lone_eye,
    own_point,
    painted,
    part_mask,
    points,
    scenes,
    shifted,
    snow,
    spot_mask,
    unit_of,
)


@dataclass(frozen=True)
class Thing:
    model: Callable[[], Planted] = ColourUnits
    explainer: Callable[[], object] = Upsample
    image: Callable = painted
    view: Callable = lambda image, scene: image
    only: int | None = None  # the one active unit, whose part then is the object


THINGS = {
    "parts": Thing(),
    "parts shifted": Thing(view=lambda image, scene: shifted(image)),
    "parts brighter": Thing(view=lambda image, scene: brighter(image)),
    "background": Thing(lambda: ColourUnits(SPOT_COLOURS)),
    "background brighter": Thing(lambda: ColourUnits(SPOT_COLOURS), view=lambda image, scene: brighter(image)),
    "clever hans": Thing(CleverHans, view=lambda image, scene: brighter(image)),
    "random": Thing(explainer=lambda: Random("pixel")),
    "prp": Thing(explainer=PRP),
    "random boxes": Thing(
        lambda: ColourUnits(NEUTRAL + (PART_COLOURS - NEUTRAL) / 2, radius=2**-10, cell=8),
        lambda: Random("smooth", mode="nearest"),
        lambda scene, marks: painted(scene, contrast=0.5),
    ),
    "hash": Thing(HashUnits, image=lambda scene, marks: snow(scene, 1), view=lambda image, scene: snow(scene, 2)),
    "eye": Thing(only=unit_of(1, 0)),
}


@cache
def measured(name: str, family: str) -> dict:
    """What the engine says; parts carry marks where their peaks are looked at under noise.

    The attack takes 40 steps: it is shown three images.
    """
    thing, samples = THINGS[name], []
    for scene in scenes() if thing.only is None else filter(lone_eye, scenes()):
        image = thing.image(scene, marks=family == "alignment")
        sample = {**scene, "image": image, "second_view": thing.view(image, scene)}
        if thing.only is not None:
            sample["object_mask"] = torch.from_numpy(part_mask(scene, 1))
        samples.append(sample)
    model = thing.model()
    if thing.only is not None:
        model.active = torch.arange(len(model.active)) == thing.only
    attacked = [key for key in FAMILIES[family].keys if "misalignment" in key]
    metrics = {}
    for keys, shown in ((set(FAMILIES[family].keys) - set(attacked), samples), (attacked, samples[:3])):
        metrics |= measure(sorted(keys), model, shown, birds(), thing.explainer()).metrics if keys else {}
    return metrics


# -- the tests --------------------------------------------------------------------------------------------------------
def engine_of(name: str, family: str) -> dict:
    return measured("random boxes" if (name, family) == ("random", "completeness") else name, family)


@pytest.mark.filterwarnings("ignore:PartStability is NaN")
@pytest.mark.parametrize(("name", "family"), TRUTH)
def test_planted_truth(name, family):
    actual = engine_of(name, family)
    for key, expected in TRUTH[name, family]().items():
        value, n = (actual[f"{family}/{key}"][field] for field in ("value", "n"))
        if isinstance(expected, tuple):
            assert abs(value - expected[0]) <= 4 * expected[1], (key, value, expected)
        else:
            assert value == pytest.approx(expected, abs=1e-12, nan_ok=True), key
        assert (n == 0) == math.isnan(value), key


def test_the_scenes_are_as_the_derivations_need_them():
    assert len(scenes()) == IMAGES
    assert max(SHIFT) <= MARGIN
    assert DRAWN == 205
    for scene in scenes():
        mask = scene["object_mask"].numpy()
        for slot in SLOTS:
            part, spot = part_mask(scene, slot), spot_mask(scene, slot)
            assert 10 <= part.sum() < DRAWN
            assert mask[part].all()
            assert not mask[spot].any()
            assert part[MARGIN:-MARGIN, MARGIN:-MARGIN].sum() == part.sum()
            x, y = points(scene)[own_point(scene, slot)]
            assert part[y, x]
    for colours in (PART_COLOURS, SPOT_COLOURS):
        apart = (colours[:, None] - torch.cat([PART_COLOURS, SPOT_COLOURS, torch.full((1, 3), NEUTRAL)])).abs()
        assert ((apart.amax(dim=2) >= 0.5).sum(dim=1) == 2 * len(colours)).all()  # from all but itself


CANNOT_TELL_BACKGROUND = {
    **{f"completeness/{key}": "the box protects whatever the unit reads" for key in ("vlc", "vac", *CHANGES)},
    **{f"continuity/{key}": "the view changes both alike" for key in (*CHANGES, "cac", "crc")},
    "complexity/object_overlap": "no overlap is the best there is",
    "alignment/stability": "nothing found twice counts as the same",
    "alignment/stability_nonempty": "undefined where nothing is found",
    **{f"alignment/{key}": "the box protects whatever the unit reads" for key in misalignment(0, 0, 0, 0)},
}


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_parts_beat_the_background_or_we_say_why_not(family):
    view = " brighter" if family == "continuity" else ""
    good, bad = measured(f"parts{view}", family), measured(f"background{view}", family)
    for key in FAMILIES[family].keys:
        gain = good[key]["value"] - bad[key]["value"]
        better = gain > 0 if good[key]["higher_is_better"] else gain < 0
        assert better == (key not in CANNOT_TELL_BACKGROUND), key


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_every_metric_but_the_object_overlap_tells_parts_from_one_of_the_impostors(family):
    view = " brighter" if family == "continuity" else ""
    good = measured(f"parts{view}", family)
    for key in FAMILIES[family].keys:
        gains = [
            good[key]["value"] - measured(bad, family)[key]["value"] for bad in (f"background{view}", "clever hans")
        ]
        better = any(gain > 0 if good[key]["higher_is_better"] else gain < 0 for gain in gains)
        assert better == (key != "complexity/object_overlap"), key


def test_no_key_is_left_out():
    for (name, family), expectation in TRUTH.items():
        assert {f"{family}/{key}" for key in expectation()} == set(FAMILIES[family].keys), (name, family)
    required = {(name, family) for name in ("parts", "background", "random") for family in FAMILY_NAMES}
    assert required <= TRUTH.keys()
