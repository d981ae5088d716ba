import numpy as np
import pytest

from protometry.datamodules.funnybirds.part_maps import LABEL_COLORS, bird_pixels, label_codes, solid_unknown_color


class TestLabelCodes:
    def test_every_color(self):
        colors = {
            **{0: (0, 0, 0), 1: (170, 170, 170), 2: (255, 255, 0), 3: (255, 255, 253), 4: (255, 255, 254)},
            **{5: (255, 0, 1), 6: (255, 0, 2), 7: (0, 255, 1), 8: (0, 255, 2), 9: (0, 0, 255)},
            **{32: (204, 204, 204), 81: (204, 204, 253)},
        }
        codes = label_codes(np.array([list(colors.values())], np.uint8))
        assert (codes.dtype, codes.tolist()) == (np.uint8, [list(colors)])

    @pytest.mark.parametrize("color", [(0, 0, 1), (255, 255, 255), (204, 204, 254), (85, 85, 85), (255, 0, 0)])
    def test_neighbours_of_colors_match_nothing(self, color):
        assert label_codes(np.array([[color]], np.uint8)).tolist() == [[255]]

    def test_agrees_with_a_loop(self):
        rng = np.random.default_rng(0)
        known = np.array(list(LABEL_COLORS.values()), np.uint8)
        part_map = known[rng.integers(len(known), size=(12, 17))]
        part_map = np.where(rng.random((12, 17, 1)) < 0.3, rng.integers(0, 256, (12, 17, 3)), part_map).astype(np.uint8)
        code_of = {color: code for code, color in LABEL_COLORS.items()}
        expected = [[code_of.get(tuple(pixel), 255) for pixel in row] for row in part_map.tolist()]
        assert label_codes(part_map).tolist() == expected

    def test_non_contiguous(self):
        part_map = np.zeros((3, 4, 8), np.uint8)[::2, :, 2:5]
        part_map[1, 2] = (255, 0, 2)
        assert label_codes(part_map).tolist() == [[0] * 4, [0, 0, 6, 0]]


class TestSolidUnknownColor:
    def test_block(self):
        part_map = np.zeros((6, 7, 3), np.uint8)
        part_map[2:5, 3:6] = (1, 2, 3)
        assert solid_unknown_color(part_map) == (1, 2, 3)

    def test_blends_and_known_areas_are_fine(self):
        part_map = np.zeros((9, 9, 3), np.uint8)
        part_map[2:4] = (1, 2, 3)  # two rows thick
        part_map[5:] = (204, 204, 210)
        assert solid_unknown_color(part_map) is None
        part_map[:3, :3] = np.arange(9).reshape(3, 3, 1) + 100  # nine different unknown colours
        assert solid_unknown_color(part_map) is None
        assert solid_unknown_color(part_map[:2]) is None

    def test_agrees_with_a_loop(self):
        rng = np.random.default_rng(1)
        result = 0
        for _ in range(60):
            part_map = np.repeat((rng.random((8, 9, 1)) < 0.75).astype(np.uint8), 3, axis=2)  # black or unknown
            blocks = [(r, c) for r in range(6) for c in range(7) if part_map[r : r + 3, c : c + 3].all()]
            assert solid_unknown_color(part_map) == ((1, 1, 1) if blocks else None)
            result += bool(blocks)
        assert 5 < result < 55


def test_bird_pixels():
    codes = np.array([[0, 1, 9, 31, 32, 255]], np.uint8)
    assert bird_pixels(codes).tolist() == [[False, True, True, True, False, False]]
