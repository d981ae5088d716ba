import math
import pickle
import warnings

import pytest
import torch

from protometry.metrics import SpatialMisalignment
from protometry.metrics.functional import (
    accuracy_change,
    keyed_uniform,
    masked_projected_gradient,
    misalignment_activation_change,
    misalignment_location_change,
    misalignment_rank_change,
)
from tests.metrics.tester import images, rows, same, same_summaries

NAN = math.nan
PARTS = ("pac", "plc", "prc", "ac")
OWNER = torch.tensor([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]).bool()
ACTIVE = torch.tensor([True, True, True, True, True, False])


def record():
    generator = torch.Generator().manual_seed(21)
    scores, perturbed = (torch.randn(13, 6, generator=generator) for _ in range(2))
    logits, perturbed_logits = (torch.randn(13, 3, generator=generator) for _ in range(2))
    maps, perturbed_maps = (torch.randn(13, 6, 7, generator=generator) for _ in range(2))
    target = torch.randint(5, (13,), generator=generator)
    scores[3, 1], logits[4, 0], maps[5], target[6], perturbed[7, 3], maps[8, 0, 0] = NAN, math.inf, 1, -1, math.inf, NAN
    return {
        "scores": scores,
        "perturbed_scores": perturbed,
        "target_ids": target,
        "target_maps": maps,
        "perturbed_target_maps": perturbed_maps,
        "logits": logits,
        "perturbed_logits": perturbed_logits,
        "labels": torch.randint(3, (13,), generator=generator),
    }


def build():
    return SpatialMisalignment(OWNER, ACTIVE, quantile=0.8)


def updated(metric, data, batch=13):
    for first in range(0, images(data), batch):
        metric.update(**rows(data, slice(first, first + batch)))
    return metric


def finite(*lists):
    return all(math.isfinite(value) for values in lists for value in values)


def slow_pac(scores, perturbed, unit):
    return 1 - max(perturbed[unit], 0) / scores[unit] if scores[unit] > 0 else NAN


def slow_plc(maps, perturbed):
    if min(maps) == max(maps) or min(perturbed) == max(perturbed):
        return NAN
    # place 32.8 of 41 sorted values: what lies above the 33rd
    one, two = ({i for i, v in enumerate(values) if v > sorted(values)[32]} for values in (maps, perturbed))
    return 1 - len(one & two) / len(one | two)


def overtaken(row, unit, label):
    """How many units of other classes score above the unit."""
    strangers = [u for u in range(6) if ACTIVE[u] and not OWNER[u, label]]
    return sum(max(row[u], 0) > max(row[unit], 0) for u in strangers)


def slow_values(data, image):
    """The four changes of an image, NaN where they are undefined."""
    one = {name: values[image].flatten().tolist() for name, values in data.items()}
    (unit,), (label,) = one["target_ids"], one["labels"]
    if unit < 0:
        return dict.fromkeys(PARTS, NAN)
    scores, maps, logits = ((one[name], one[f"perturbed_{name}"]) for name in ("scores", "target_maps", "logits"))
    ranked = [[value for value, used in zip(row, ACTIVE, strict=True) if used] for row in scores]
    return {
        "pac": slow_pac(*scores, unit) if finite([row[unit] for row in scores]) else NAN,
        "plc": slow_plc(*maps) if finite(*maps) else NAN,
        "prc": overtaken(scores[1], unit, label) - overtaken(scores[0], unit, label) if finite(*ranked) else NAN,
        "ac": (max(logits[0]) == logits[0][label]) - (max(logits[1]) == logits[1][label]) if finite(*logits) else NAN,
    }


def oracle(data):
    values = [slow_values(data, image) for image in range(images(data))]
    defined = {part: [value[part] for value in values if math.isfinite(value[part])] for part in PARTS}
    return {part: sum(entries) / len(entries) if entries else NAN for part, entries in defined.items()}


def test_hand_case():
    # one image: score 2 → .8, overtaken by two units of the other class, still correct, one of two region cells moves
    maps = torch.arange(20.0).view(1, 4, 5)
    moved = maps.clone()
    moved[0, 0, 0], moved[0, 3, 3] = 18, 0
    metric = SpatialMisalignment(torch.tensor([[True, False], [False, True], [False, True]]))
    logits = torch.tensor([[2.0, 1.0]])
    scores, perturbed = torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([[0.8, 1.0, 0.9]])
    metric.update(scores, perturbed, torch.tensor([0]), maps, moved, logits, logits.flip(1), torch.tensor([0]))
    assert {part: value.item() for part, value in metric.compute().items()} == pytest.approx(
        {"pac": 0.6, "plc": 2 / 3, "prc": 2, "ac": 1}
    )
    # a second image without any change: s² = x²/2, half width t x / 2 with t = 12.706205
    metric.update(scores, scores, torch.tensor([0]), maps, maps, logits, logits, torch.tensor([0]))
    summary = metric.summary()
    assert summary["prc"] == pytest.approx({"value": 1, "low": 1 - 12.706205, "high": 13.706205, "n": 2, "skipped": 0})
    assert [(summary[part]["low"] >= -1, summary[part]["high"] <= 1) for part in ("plc", "ac")] == [(True, True)] * 2
    assert [summary[part]["value"] for part in PARTS] == pytest.approx([0.3, 1 / 3, 1, 0.5])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_batches_give_the_value_of_the_oracle(dtype):
    data = {name: value.to(dtype) if value.is_floating_point() else value for name, value in record().items()}
    expected = oracle(data)
    for batch in (1, 4, 13):
        values = updated(build(), data, batch).compute()
        assert tuple(values) == PARTS
        assert all(value.dtype == torch.float64 and value.shape == () for value in values.values())
        assert all(same(values[part], expected[part]) for part in PARTS), batch
    order = torch.randperm(13, generator=torch.Generator().manual_seed(0))
    values = updated(build(), rows(data, order), 5).compute()
    assert all(same(values[part], expected[part]) for part in PARTS)
    for image in range(13):
        one = rows(data, slice(image, image + 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what has no value in this image
            values = updated(build(), one).compute()
        assert all(same(values[part], slow_values(data, image)[part]) for part in PARTS), image


def test_every_part_counts_its_own_images():
    summary = updated(build(), record()).summary()
    values = [slow_values(record(), image) for image in range(13)]
    for part in PARTS:
        n = sum(math.isfinite(value[part]) for value in values)
        assert 0 < n < 13
        assert (summary[part]["n"], summary[part]["skipped"]) == (n, 13 - n)
        assert type(summary[part]["n"]) is int


def test_no_perturbation_no_change():
    data = record()
    for name in ("scores", "target_maps", "logits"):
        data["perturbed_" + name] = data[name]
    assert {part: value.item() for part, value in updated(build(), data).compute().items()} == dict.fromkeys(PARTS, 0)


def test_multilabel():
    data = record()
    one_hot = data | {"labels": torch.nn.functional.one_hot(data["labels"], 3).bool()}
    values, single = updated(build(), one_hot).compute(), updated(build(), data).compute()
    assert all(same(values[part], single[part]) for part in ("pac", "plc", "prc"))


def test_protocol():
    data = record()
    metric = updated(build(), data)
    value, summary = metric.compute(), metric.summary()
    for copy in (metric.clone(), pickle.loads(pickle.dumps(metric)), metric.half(), metric.to("cpu")):
        assert all(same(copy.compute()[part], value[part]) for part in PARTS)
    forward = build()
    for part in (slice(0, 6), slice(6, None)):
        batch_value, expected = forward(**rows(data, part)), updated(build(), rows(data, part)).compute()
        assert all(same(batch_value[name], expected[name]) for name in PARTS)
    assert all(same_summaries(forward.summary()[part], summary[part]) for part in PARTS)
    before = {state: getattr(metric, state).clone() for state in metric._defaults}
    metric.update(**rows(data, slice(0, 0)))
    assert all(torch.equal(getattr(metric, state), kept) for state, kept in before.items())
    metric.reset()
    assert metric.image_count.tolist() == [0] * 4


def test_undefined():
    data = record()
    data["target_ids"] = torch.full((13,), -1)
    metric = updated(build(), data)
    with pytest.warns(UserWarning, match="A part of SpatialMisalignment is NaN") as caught:
        values = metric.compute()
    assert len(caught) == 1
    assert all(values[part].isnan() for part in PARTS)
    assert [(entry["n"], entry["skipped"]) for entry in metric.summary().values()] == [(0, 13)] * 4


def share(rank, world_size, metric, data, shares):
    part = rows(data, shares[rank])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if images(part):
            updated(metric, part, 2)
        return metric.summary(), metric.compute()


def test_two_processes(ddp_pool):
    data = record()
    expected = updated(build(), data).summary()
    for shares in ([slice(0, None, 2), slice(1, None, 2)], [slice(None), slice(0, 0)]):
        for summary, values in ddp_pool.run(share, build(), data, shares):
            assert all(same_summaries(summary[part], expected[part]) for part in PARTS)
            assert all(same(values[part], expected[part]["value"]) for part in PARTS)


SCORES, PERTURBED = torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([[0.8, 1.0, 0.9]])
STRANGERS = torch.tensor([[True, False], [False, True], [False, True]])
TARGET, LABEL = torch.tensor([0]), torch.tensor([0])
MAPS = torch.arange(20.0).view(1, 4, 5)


def test_activation_change_by_hand():
    assert misalignment_activation_change(SCORES, PERTURBED, TARGET).item() == pytest.approx(0.6)
    # signed: the score of unit 2 rises from 0.5 to 0.9
    assert misalignment_activation_change(SCORES, PERTURBED, TARGET + 2).item() == pytest.approx(-0.8)
    assert misalignment_activation_change(SCORES, -SCORES, TARGET).tolist() == [1]
    for clean in (0.0, -1.0, NAN, math.inf):
        scores = torch.tensor([[clean, 1.0, 1.0]])
        assert misalignment_activation_change(scores, PERTURBED, TARGET).isnan().all()


def test_location_change_at_its_ends():
    assert misalignment_location_change(MAPS, MAPS * 8 + 3).tolist() == [0]
    assert misalignment_location_change(MAPS, -MAPS).tolist() == [1]
    flat = torch.ones_like(MAPS)
    assert misalignment_location_change(flat, MAPS).isnan().all()
    assert misalignment_location_change(MAPS, flat).isnan().all()


def test_rank_change_by_hand():
    def change(perturbed, labels=LABEL, owner=STRANGERS, active=None):
        return misalignment_rank_change(SCORES, perturbed, TARGET, labels, owner, active).tolist()

    assert change(PERTURBED) == [2]
    assert change(PERTURBED, active=torch.tensor([True, False, True])) == [1]
    # units of the image's own class do not overtake
    assert change(PERTURBED, owner=torch.tensor([[True, False], [True, False], [False, True]])) == [1]
    assert change(PERTURBED, labels=torch.tensor([[True, True]])) == [0]
    # neither do equal scores, nor, clipped to equal ones, scores below 0
    assert change(torch.ones(1, 3)) == [0]
    assert change(torch.tensor([[-2.0, -1, -1]])) == [0]


def test_accuracy_change_by_hand():
    logits = torch.tensor([[2.0, 1.0], [1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [NAN, 1.0]])
    after = torch.tensor([[1.0, 2.0], [2.0, 1.0], [3.0, 1.0], [1.0, 3.0], [1.0, 2.0]])
    labels = torch.zeros(5, dtype=torch.int64)
    assert accuracy_change(logits, after, labels).tolist() == pytest.approx([1, -1, 0, 0, NAN], nan_ok=True)
    logits, labels = torch.tensor([[1.0, -1.0, 2.0]]), torch.tensor([[True, False, True]])
    assert accuracy_change(logits, logits, labels).tolist() == [0]
    assert accuracy_change(logits, -logits, labels).tolist() == [1]
    assert accuracy_change(-logits, logits, labels).tolist() == [-1]


class TestAttack:
    """A unit whose score is the mean of the left half plus half the mean of the right; the left half is protected."""

    IMAGES = torch.full((4, 3, 8, 8), 0.5)
    MASK = torch.zeros(4, 1, 8, 8, dtype=torch.bool)
    MASK[..., 4:] = True
    EPSILON = 0.4 * torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def unit(self, images):
        return images[..., :4].mean((1, 2, 3)) + 0.5 * images[..., 4:].mean((1, 2, 3))

    def change(self, score, steps):
        ids = torch.arange(4)
        start = self.EPSILON * keyed_uniform(ids, torch.zeros(4, 1, dtype=torch.int64), (3, 8, 8))[:, 0]
        attacked = masked_projected_gradient(
            score, self.IMAGES, self.MASK, self.EPSILON, self.EPSILON / 40, steps, start
        )
        clean, after = score(self.IMAGES)[:, None], score(attacked)[:, None]
        return misalignment_activation_change(clean, after, torch.zeros(4, dtype=torch.int64)), attacked

    def test_the_attack_beats_noise(self):
        images = self.IMAGES.clone().requires_grad_()
        self.unit(images).sum().backward()
        assert images.grad.norm() > 0
        attacked, pixels = self.change(self.unit, 40)
        noise, _ = self.change(self.unit, 0)
        assert (attacked > noise + 0.02).all()
        assert pixels[..., :4].equal(self.IMAGES[..., :4])
        # at least 40 of 40 steps from the centre: half of the mean of ε, over a score of .75
        assert attacked.tolist() == pytest.approx([0.5 * self.EPSILON.mean().item() / 0.75] * 4, abs=0.02)

    def test_a_unit_that_reads_protected_pixels_only(self):
        for steps in (0, 40):
            values, pixels = self.change(lambda images: images[..., :4].mean((1, 2, 3)) + 0 * images.sum(), steps)
            assert values.tolist() == [0] * 4
            maps = self.IMAGES[:, 0] + torch.arange(64.0).view(8, 8), pixels[:, 0] + torch.arange(64.0).view(8, 8)
            assert misalignment_location_change(maps[0][..., :4], maps[1][..., :4]).tolist() == [0] * 4


def test_errors_of_the_kernels():
    for owner, active, text in (
        (STRANGERS[:2], None, r"`owner` to be of shape \(3, K\)"),
        (STRANGERS, torch.ones(3), "`active` to be of shape .* dtype bool"),
    ):
        with pytest.raises(ValueError, match=text):
            misalignment_rank_change(SCORES, PERTURBED, TARGET, LABEL, owner, active)
