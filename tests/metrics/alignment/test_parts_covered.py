import torch

from protometry.metrics import PartsCovered
from tests.metrics.alignment.parts import HALF, PARTS, SIZE, UNITS, AgainstRandomPeaksTests, clean_record, found, slots
from tests.metrics.tester import Case, mean, updated

RECORD = clean_record()
HIDDEN = {"part_visible": torch.zeros(13, PARTS, dtype=torch.bool)}
OWNER = torch.zeros(UNITS, 4, dtype=torch.bool)
OWNER[[0, 1, 1, 2, 3, 4], [0, 0, 1, 1, 1, 2]] = True  # a shared unit, a class that is never shown, one without units
GROUPS = {"apart": None, "merged": [[0, 2], [1]]}


def slow_parts_covered(groups):
    def oracle(record):
        hits, visible = ({unit: [0] * len(groups) for unit in range(UNITS)} for _ in range(2))
        for image, slot, unit in slots(record):
            inside = found(record, "owned_peaks", image, slot)
            x, y = record["owned_peaks"][image, slot].tolist()
            places = record["part_locations"][image].tolist()
            near = [((places[j][0] - x) ** 2 + (places[j][1] - y) ** 2, j) for j, hit in enumerate(inside) if hit]
            for number, group in enumerate(groups):
                visible[unit][number] += any(inside[j] is not None for j in group)
                hits[unit][number] += bool(near) and min(near)[1] in group
        counts = []
        for owned in OWNER.T.tolist():
            units = [unit for unit, own in enumerate(owned) if own and any(visible[unit])]
            shares = [[h / v if v else -1 for h, v in zip(hits[u], visible[u], strict=True)] for u in units]
            counts += [len({share.index(max(share)) for share in shares if max(share) >= 0.5})] if units else []
        return mean(counts)

    return oracle


class TestPartsCovered(AgainstRandomPeaksTests):
    cases = {
        name: Case(
            lambda groups=groups: PartsCovered(OWNER, PARTS, SIZE, HALF, groups),
            RECORD,
            slow_parts_covered(groups or [[part] for part in range(PARTS)]),
            HIDDEN,
            4,
        )
        for name, groups in GROUPS.items()
    }

    def test_planted_units(self):
        # three units, each exactly on one of the parts in every image, and a copy of the first
        points = torch.rand(8, 3, 2, generator=torch.Generator().manual_seed(0)) * 20
        points = (points + torch.tensor([[0, 0], [90, 0], [0, 90]])).floor()
        record = {
            "owned_ids": torch.arange(4).expand(8, 4),
            "owned_peaks": points[:, [0, 1, 2, 0]].long(),
            "part_locations": points,
            "part_visible": torch.ones(8, 3, dtype=torch.bool),
        }
        owner = torch.ones(4, 1, dtype=torch.bool)
        assert updated(PartsCovered(owner, 3), record).compute() == 3
        assert updated(PartsCovered(owner, 3, groups=[[0, 1], [2]]), record).compute() == 2
        away = record | {"owned_peaks": record["owned_peaks"] + 100}
        assert updated(PartsCovered(owner, 3), away).compute() == 0  # near no part: none covered, and not undefined
        values = [updated(PartsCovered(owner, 3, least_images=n), record).values().tolist() for n in (8, 9)]
        assert str(values) == "[[3.0], [nan]]"
