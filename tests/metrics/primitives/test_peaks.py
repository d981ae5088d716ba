import pytest
import torch
import torch.nn.functional as F

from protometry.metrics.functional import peak_cells, peak_locations
from protometry.metrics.primitives.peaks import margin_to_elsewhere
from tests.metrics.primitives.maps import each_map, random_maps
from tests.metrics.tester import DTYPES
from tests.rounding import tolerance


class TestPeaks:
    def test_ties_go_to_the_first_in_row_major_order(self):
        assert peak_cells(torch.tensor([[0.0, 2, 2], [2, 0, 0]])).tolist() == [1, 0]
        assert peak_cells(torch.tensor([[0.0, 0, 0, 0, 0], [0, 0, 0, 0, 1]])).tolist() == [4, 1]

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("ties", [False, True])
    def test_slow_oracle(self, dtype, ties):
        maps = random_maps(6, (3, 2, 2, 5), dtype, ties)
        expected = []
        for values in each_map(maps):
            index = values.index(max(values))
            expected.append([index % 5, index // 5])
        peaks = peak_cells(maps)
        assert (peaks.dtype, peaks.flatten(end_dim=1).tolist()) == (torch.int64, expected)

    def test_flat_is_the_first_cell(self):
        maps = torch.full((2, 3), 1.0)
        maps[1, 1] += 5e-6
        assert peak_cells(maps).tolist() == [0, 0]
        assert peak_cells(torch.zeros(0, 4, 3, 3)).shape == (0, 4, 2)

    @pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
    def test_locations(self, mode, dtype):
        maps = random_maps(7, (2, 3, 3, 4), dtype)
        image = F.interpolate(maps.double(), (12, 20), mode=mode).flatten(2)
        x, y = peak_locations(maps, (12, 20), mode).unbind(dim=-1)
        result = image.gather(2, (y * 20 + x)[..., None]).squeeze(2)
        # 16 weights of some ten operations each, 16 products and their sum, for the peak and for its rival
        assert (image.amax(dim=2) - result).max() <= tolerance(200, maps)

    def test_locations_in_chunks(self, monkeypatch):
        maps = random_maps(8, (5, 3, 3, 4))
        whole = peak_locations(maps, (12, 20))
        monkeypatch.setattr("protometry.metrics.primitives.peaks.UPSAMPLED_ELEMENTS", 500)
        assert torch.equal(peak_locations(maps, (12, 20)), whole)
        assert peak_locations(torch.zeros(0, 2, 3, 3), (6, 6)).shape == (0, 2, 2)
        assert peak_locations(torch.full((1, 7, 7), 0.3), (224, 224)).tolist() == [[0, 0]]


@pytest.mark.parametrize(("size", "away"), [((14, 15), 2), ((5, 7), 1), ((2, 9), 1), ((1, 1), 1), ((2, 2), 1)])
def test_margin_is_the_distance_between_two_places(size, away):
    distances = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(0))
    margins = margin_to_elsewhere(distances)
    for margin, map_ in zip(margins.flatten(), distances.flatten(0, 1), strict=True):
        cells = [(row, col) for row in range(size[0]) for col in range(size[1])]
        row, col = min(cells, key=lambda cell: map_[cell].item())
        elsewhere = [map_[r, c].item() for r, c in cells if max(abs(r - row), abs(c - col)) > away]
        assert margin.item() == pytest.approx(min(elsewhere) - map_[row, col].item() if elsewhere else 0.0)
