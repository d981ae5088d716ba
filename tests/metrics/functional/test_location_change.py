import math

import pytest
import torch

from metrics.functional import (
    clip_saliency,
    prototype_activation_location_change,
    prototype_activation_location_contrast,
    prototype_location_change,
    prototype_location_contrast,
    visualization_location_change,
)
from tests.metrics.change.changes import noisy_maps

NAN = math.nan


def one(rows):
    return torch.tensor(rows)[None, None]


def at(height, width, *cells):
    """A map that is 1 at the cells (row, col) and 0 elsewhere."""
    maps = torch.zeros(1, 1, height, width)
    for row, col in cells:
        maps[0, 0, row, col] = 1
    return maps


class TestPeaks:
    def test_non_square_grid(self):
        # (row 0, col 1) to (row 1, col 4): 3 columns and 1 row; the longest way on 2 x 5 cells is 4 + 1
        assert prototype_location_change(at(2, 5, (0, 1)), at(2, 5, (1, 4))).item() == 4
        assert prototype_location_change(at(2, 5, (0, 1)), at(2, 5, (1, 4)), relative=True).item() == 0.8
        assert prototype_location_change(at(2, 5, (0, 0)), at(2, 5, (1, 4))).item() == 5
        assert prototype_location_change(at(2, 5, (0, 0)), at(2, 5, (1, 4)), relative=True).item() == 1
        assert prototype_location_change(at(5, 2, (0, 0)), at(5, 2, (4, 1))).item() == 5

    def test_tie(self):
        # peak (0, 1) against (1, 2): 1 + 1
        assert prototype_location_change(one([[0.0, 2, 2], [2, 0, 0]]), at(2, 3, (1, 2))).item() == 2

    def test_flat_map_has_its_peak_at_the_first_cell(self):
        flat = torch.full((1, 1, 2, 3), 4.0)
        assert prototype_location_change(flat, at(2, 3, (1, 2))).item() == 3
        assert prototype_location_change(flat, 2 * flat).item() == 0

    def test_one_cell(self):
        assert prototype_location_change(at(1, 1, (0, 0)), at(1, 1, (0, 0))).item() == 0
        assert prototype_location_change(at(1, 1, (0, 0)), at(1, 1, (0, 0)), relative=True).isnan()


class TestRegions:
    def test_active_regions(self):
        # {1, .6} against {1, .9}: one of three shared
        value = prototype_activation_location_change(one([[0, 1], [0.6, 0.2]]), one([[1, 0.9], [0, 0]]))
        assert value.item() == pytest.approx(2 / 3)

    def test_threshold(self):
        # above 0.25 of the range: {1, .6} against {1, .9, .3}; above 0.75: {1} against {1, .9}
        maps, perturbed = one([[0, 1], [0.6, 0.2]]), one([[0.9, 1], [0.3, 0.0]])
        assert prototype_activation_location_change(maps, perturbed, 0.25).item() == pytest.approx(1 / 3)
        assert prototype_activation_location_change(maps, perturbed, 0.75).item() == pytest.approx(1 / 2)

    @pytest.mark.parametrize("flat", [0.0, 1.0])
    def test_flat_is_undefined(self, flat):
        flat = torch.full((1, 1, 2, 2), flat)
        assert prototype_activation_location_change(flat, at(2, 2, (0, 0))).isnan()
        assert prototype_activation_location_change(at(2, 2, (0, 0)), flat).isnan()

    def test_each_map_on_its_own_scale(self):
        maps = noisy_maps(0)
        scaled = maps * torch.logspace(-3, 3, len(maps))[:, None, None, None]
        assert prototype_activation_location_change(maps, scaled).nansum() == 0


class TestSaliency:
    def test_by_hand(self):
        # boxes (0, 0, 1, 1) and (1, 1, 2, 2) share 1 of 7 pixels, the regions 1 of 3
        saliency, perturbed = at(4, 4, (0, 0), (1, 1)), at(4, 4, (1, 1), (2, 2))
        assert visualization_location_change(saliency, perturbed).item() == pytest.approx(6 / 7)
        assert visualization_location_change(saliency, perturbed, "mask").item() == pytest.approx(2 / 3)

    @pytest.mark.parametrize("region", ["box", "mask"])
    def test_ends(self, region):
        assert visualization_location_change(at(4, 6, (1, 5)), at(4, 6, (1, 5)), region).item() == 0
        assert visualization_location_change(at(4, 6, (1, 5)), at(4, 6, (3, 0)), region).item() == 1
        apart = visualization_location_change(at(9, 9, (0, 0), (1, 1)), at(9, 9, (7, 7), (8, 8)), region)
        assert apart.item() == 1

    @pytest.mark.parametrize("region", ["box", "mask"])
    def test_empty_is_undefined(self, region):
        for saliency, perturbed in ((at(3, 3), at(3, 3, (0, 0))), (at(3, 3, (0, 0)), at(3, 3)), (at(3, 3), at(3, 3))):
            assert visualization_location_change(saliency, perturbed, region).isnan()

    def test_errors(self):
        with pytest.raises(ValueError, match=r"`region` to be one of \('box', 'mask'\), but got 'pixels'"):
            visualization_location_change(at(2, 2), at(2, 2), region="pixels")
        with pytest.raises(ValueError, match="`perturbed_saliency` to be of shape"):
            visualization_location_change(at(2, 2), at(2, 3))
        for kernel in (prototype_location_change, prototype_activation_location_change):
            with pytest.raises(ValueError, match="`maps` to be of shape"):
                kernel(at(2, 2)[0], at(2, 2)[0])
            with pytest.raises(ValueError, match="`perturbed_maps` to be of shape"):
                kernel(at(2, 2), at(2, 3))
        with pytest.raises(ValueError, match=r"`threshold` to lie in \[0, 1\), but got 1"):
            prototype_activation_location_change(at(2, 2), at(2, 2), 1)


class TestContrast:
    def test_peaks_by_hand(self):
        # peaks (0, 0), (0, 2), (2, 2): distances 2, 4, 2
        maps = torch.cat([at(3, 3, (0, 0)), at(3, 3, (0, 2)), at(3, 3, (2, 2))], dim=1)
        assert prototype_location_contrast(maps).item() == pytest.approx(8 / 3)

    def test_regions_by_hand(self):
        # {a, b}, {b}, {c}: 1/2, 1, 1
        maps = torch.cat([at(1, 3, (0, 0), (0, 1)), at(1, 3, (0, 1)), at(1, 3, (0, 2))], dim=1)
        assert prototype_activation_location_contrast(maps).item() == pytest.approx(2.5 / 3)

    def test_undefined_pairs_do_not_spoil_the_mean(self):
        maps = torch.cat([at(1, 3, (0, 0)), at(1, 3), at(1, 3, (0, 0), (0, 2)), torch.full((1, 1, 1, 3), NAN)], dim=1)
        # the flat map peaks at the first cell, as the others do; its region is undefined
        assert prototype_location_contrast(maps).item() == 0
        assert prototype_activation_location_contrast(maps).item() == 0.5

    def test_no_pair(self):
        for kernel in (prototype_location_contrast, prototype_activation_location_contrast):
            assert kernel(at(3, 4, (1, 1))).isnan().tolist() == [True]
            assert kernel(torch.full((2, 3, 2, 2), NAN)).isnan().all()
            assert kernel(torch.zeros(0, 3, 2, 2)).shape == (0,)
        assert prototype_activation_location_contrast(torch.zeros(1, 3, 2, 2)).isnan().all()

    def test_order_of_units(self):
        maps = noisy_maps(3)
        for kernel in (prototype_location_contrast, prototype_activation_location_contrast):
            assert torch.allclose(kernel(maps.flip(1)), kernel(maps), equal_nan=True)
            with pytest.raises(ValueError, match="`maps` to be of shape"):
                kernel(maps[0])


def test_raw_maps_of_the_batch_do_not_touch_each_other():
    # one image with values a thousand times larger: the regions of the others stay the same
    maps = noisy_maps(5)
    maps[0] *= 1000
    assert torch.equal(clip_saliency(maps)[1:], clip_saliency(maps[1:]))
