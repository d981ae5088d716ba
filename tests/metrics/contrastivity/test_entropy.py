import math
import pickle
import warnings
from functools import partial

import pytest
import torch

from protometry.metrics import PrototypeEntropy
from protometry.metrics.functional import prototype_entropy
from tests.metrics.tester import NAN, Case, MetricTests, mean, rows, same_summaries, updated

ACTIVE = torch.tensor([True, True, False, True, True])
CASE = torch.tensor([[2.0], [2.0], [1.0], [0.1]])


def record():
    generator = torch.Generator().manual_seed(3)
    scores = torch.rand(13, 5, generator=generator)
    scores[:, 3] = -scores[:, 3]
    scores[4, 0], scores[5, 1], scores[6, 2] = NAN, math.inf, NAN
    return {"scores": scores, "unit_ids": torch.randint(-1, 2, (13, 2), generator=generator)}


build = partial(PrototypeEntropy, 5, active=ACTIVE)


build_published = partial(build, variant="quanproto")


def slow_entropy(column, bins=10, variant="paper"):
    column = [score for score in column if math.isfinite(score)]
    if not column or max(column) <= 0:
        return NAN
    cells = [min(max(math.floor(score / max(column) * bins), 0), bins - 1) for score in column]
    shares = [cells.count(cell) / len(cells) for cell in set(cells)]
    if variant == "quanproto":
        return min(-sum(share * math.log2(share) for share in shares if share >= 0.001), 1)
    return -sum(share * math.log2(share) for share in shares)


def slow(data, variant="paper"):
    shown = set(range(5))
    if variant == "quanproto":
        shown = {unit for ids in data["unit_ids"].tolist() for unit in ids if unit >= 0} or shown
    columns = [data["scores"][:, unit].tolist() for unit in shown if ACTIVE[unit]]
    return mean(slow_entropy(column, variant=variant) for column in columns)


def test_room_for_more_images():
    data = record()["scores"].nan_to_num(0, 0, 0)
    metric, places = build(), set()
    for index, row in enumerate(data.split(1)):
        with torch.inference_mode(index in (0, 1, 2, 12)):
            metric.update(row)
        places.add(metric.scores.data_ptr())
    assert torch.equal(metric.scores, data)
    assert len(places) <= 5  # rooms of 1, 2, 4, 8 and 16 rows


def test_copies_do_not_share_a_buffer():
    data = record()["scores"].nan_to_num(0, 0, 0)
    metric = updated(build(), {"scores": data[:3]}, 3)
    copies = [metric.clone(), pickle.loads(pickle.dumps(metric))]
    metric.update(data[3:4])
    for copy in copies:
        copy.update(data[5:7])
        assert torch.equal(copy.scores, data[[0, 1, 2, 5, 6]])
    assert torch.equal(metric.scores, data[:4])
    before = metric.scores
    metric.reset()
    metric.update(data[7:])
    assert torch.equal(metric.scores, data[7:])
    assert torch.equal(before, data[:4])


def test_hand_case():
    # x = 1, 1, .5, .05: bins 9, 9, 5, 0; shares ½, ¼, ¼
    metric = updated(PrototypeEntropy(1), {"scores": CASE}, 3)
    assert (metric.compute(), updated(PrototypeEntropy(1, variant="quanproto"), {"scores": CASE}).compute()) == (1.5, 1)
    assert updated(PrototypeEntropy(1, bins=1), {"scores": CASE}).compute() == 0
    # bins 9, 0 (negative), 9, 0
    assert prototype_entropy(torch.tensor([[1.0], [-0.5], [0.95], [0.05]])).tolist() == [1.0]
    # two units, 1.5 and 0 bits, of at most log2 10 = 3.3219: half an unseen event of 3.3219 and one of 1.5 make
    # events of (1.5 + 1.6610) / 1.5 = 2.1073 and a share of .3559; Wilson's interval of it, with n = 2 and t = 12.7062
    metric = updated(PrototypeEntropy(3), {"scores": torch.cat([CASE, CASE * 0 + 1, -CASE], dim=1)})
    summary = metric.summary()
    assert [summary["value"], summary["low"], summary["high"]] == pytest.approx([0.75, 0.00328, 2.09660], abs=1e-5)
    assert (summary["n"], summary["skipped"]) == (2, 1)


NOT_POSITIVE = {"scores": -record()["scores"].nan_to_num(0, 0, 0).abs()}


class TestBothVariants(MetricTests):
    cases = {
        "paper": Case(build, record(), slow, NOT_POSITIVE, 5),
        "quanproto": Case(build_published, record(), partial(slow, variant="quanproto"), NOT_POSITIVE, 5),
    }


def many_batches(rank, world_size, metric, data):
    """Processes of very different size; and again after more images, as in a later epoch."""
    first, more = rows(data, slice(0, 12)), rows(data, slice(12, None))
    summaries = []
    for part in (first, more):
        if rank == 1:
            updated(metric, part, 5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            summaries.append(metric.summary())
    return summaries, tuple(metric.scores.shape)


def test_a_process_that_never_sees_an_image(ddp_pool):
    expected = [updated(build(), rows(record(), slice(0, end))).summary() for end in (12, None)]
    answers = ddp_pool.run(many_batches, build(), record())
    for summaries, _ in answers:
        assert all(same_summaries(one, other) for one, other in zip(summaries, expected, strict=True))
    assert [shape for _, shape in answers] == [(0, 5), (13, 5)]


def test_what_is_left_out_is_counted():
    # NaN and infinity of active units; units 2 (inactive) and 3 (never positive)
    assert updated(build(), record()).summary()["skipped"] == 2 + 2


def test_slow_oracle():
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        scores = torch.randn(40, 5, generator=generator).T.contiguous().T
        scores[:, 3] = -scores[:, 3].abs()
        scores[4, 0], scores[5, 1], scores[6, 1] = NAN, math.inf, -math.inf
        for bins in (1, 7, 10):
            for variant in ("paper", "quanproto"):
                expected = [slow_entropy(column, bins, variant) for column in scores.double().T.tolist()]
                values = prototype_entropy(scores, bins, variant)
                assert values.dtype == torch.float64
                assert values.tolist() == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_only_the_published_tables_clamp_at_one_and_drop_negligible_bins():
    middles = torch.arange(10.0).add(0.5).div(9.5)[:, None]
    assert prototype_entropy(middles).item() == pytest.approx(math.log2(10))
    assert prototype_entropy(middles, variant="quanproto").tolist() == [1]
    scores = torch.ones(2000, 1)
    scores[0] = 0.05  # share 0.0005
    kept = 1999 / 2000
    assert prototype_entropy(scores, variant="quanproto").item() == pytest.approx(-kept * math.log2(kept))
    scores[1] = 0.05  # share 0.001 is not below
    kept, other = 1998 / 2000, 0.001
    expected = -kept * math.log2(kept) - other * math.log2(other)
    assert prototype_entropy(scores, variant="quanproto").item() == pytest.approx(expected)


def test_ends_and_edges():
    assert prototype_entropy(torch.full((5, 1), 0.3)).tolist() == [0]
    assert prototype_entropy(torch.tensor([[3.0]])).tolist() == [0]
    assert prototype_entropy(torch.tensor([[0.0], [-1.0]])).isnan().all()
    assert prototype_entropy(torch.tensor([[NAN], [math.inf]])).isnan().all()
    assert prototype_entropy(torch.zeros(0, 2)).isnan().tolist() == [True, True]
    # edges belong to the bin above, also after division in float64: 0.5 / 1 in bin 5
    assert prototype_entropy(torch.tensor([[1.0], [0.5], [0.55]])).item() == pytest.approx(slow_entropy([1, 0.5, 0.55]))


def test_scores_that_never_differ_are_not_the_best():
    some = torch.tensor([0.3, 2.0, 0.0]).repeat(8, 1)
    constant = some * (1 + 1e-6 * torch.rand(8, 3, generator=torch.Generator().manual_seed(0)))
    some[0, 1] = 1
    with pytest.warns(UserWarning, match="is NaN: .*, since the scores of every unit are the same on all images"):
        assert updated(PrototypeEntropy(3), {"scores": constant}).compute().isnan()
    assert updated(PrototypeEntropy(3), {"scores": some}, 3).summary()["n"] == 2  # in whole, as in the paper
    assert updated(PrototypeEntropy(3), {"scores": some[:1]}).compute() == 0


def test_scale_order_and_other_units_change_nothing():
    scores = torch.rand(30, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = prototype_entropy(scores)
    torch.testing.assert_close(prototype_entropy(scores * 8), expected, rtol=0, atol=0)
    torch.testing.assert_close(prototype_entropy(scores[:, [2, 0]]), expected[[2, 0]], rtol=0, atol=0)
    many = prototype_entropy(scores.repeat(1, 5_000))  # three images at a time
    torch.testing.assert_close(many, expected.repeat(5_000), rtol=0, atol=0)
