import torch

from protometry.metrics import OnObject
from protometry.metrics.functional import peak_object_share
from tests.metrics.tester import Case, MetricTests, mean, updated

UNITS, SIZE, GRID = 6, (13, 10), (4, 3)  # tiles overlap by a row or a column


def object_record():
    generator = torch.Generator().manual_seed(3)
    maps = torch.randint(0, 9, (11, 3, *GRID), generator=generator).float()
    maps[1, 0], maps[2, 1] = 1.0, torch.nan  # no peak
    masks = torch.rand(11, *SIZE, generator=generator) < torch.tensor([0.0, 0.2, 0.3, 0.6] * 3)[:11, None, None]
    ids = torch.rand(11, UNITS - 1, generator=generator).argsort(dim=1)[:, :3]  # the last unit is never shown
    ids[5, 2] = -1
    return {"maps": maps, "unit_ids": ids, "object_masks": masks}


RECORD = object_record()


def slow_share(cells, mask):
    if not min(cells) < max(cells) or not mask.any() or mask.all():
        return None
    row, col = divmod(cells.index(max(cells)), GRID[1])
    rows, cols = (
        range(i * pixels // n, -(-(i + 1) * pixels // n))
        for i, pixels, n in ((row, SIZE[0], GRID[0]), (col, SIZE[1], GRID[1]))
    )
    return mean([float(mask[y, x]) for y in rows for x in cols])


def slow_on_object(record):
    shares = {unit: [] for unit in range(UNITS)}
    for image, ids in enumerate(record["unit_ids"].tolist()):
        for slot, unit in enumerate(ids):
            share = slow_share(record["maps"][image, slot].flatten().tolist(), record["object_masks"][image])
            if unit >= 0 and share is not None:
                shares[unit].append(share >= 0.25)
    return mean([mean(result) for result in shares.values() if result])


class TestOnObject(MetricTests):
    cases = {
        "on_object": Case(
            lambda: OnObject(UNITS),
            RECORD,
            slow_on_object,
            {"object_masks": torch.zeros(11, *SIZE, dtype=torch.bool)},
            33 + UNITS,
        )
    }

    def test_three_strictnesses(self):
        # cells of 4 pixels, of which 0, 1, 2 and 4 are object
        mask = torch.tensor([[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1]]).bool()[None]
        maps = torch.eye(4).view(1, 4, 2, 2)
        metric = updated(OnObject(4), {"maps": maps, "unit_ids": torch.arange(4)[None], "object_masks": mask})
        shares = peak_object_share(maps, mask)[0].tolist()
        assert shares == [0.25, 0, 0.5, 1]
        summary = metric.summary()
        assert [summary[name] for name in ("touching", "value", "mostly")] == [0.75, 0.75, 0.25]

    def test_an_object_that_fills_the_image_says_nothing(self):
        masks = torch.tensor([[[1, 0], [0, 0]], [[1, 1], [1, 1]]]).bool()
        record = {"maps": torch.eye(4)[:1].view(1, 1, 2, 2).expand(2, -1, -1, -1), "unit_ids": torch.zeros(2, 1).long()}
        assert updated(OnObject(1), record | {"object_masks": masks}).summary()["value"] == 1
        assert updated(OnObject(1), record | {"object_masks": masks[1:].expand(2, -1, -1)}).compute().isnan()
