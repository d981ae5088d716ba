"""Charts: their size, and that nothing but their numbers decides their pixels."""

import matplotlib
import pytest

from protometry.explanations.charts import chart, styled, to_picture
from protometry.explanations.views import cut_text, font_of


@styled
def drawn(values, rows=1, columns=2):
    figure, panels = chart(120, 80, rows, columns)
    panels[-1].plot(values)
    return to_picture(figure)


def test_pictures_depend_on_numbers_alone():
    picture = drawn([1, 2])
    assert (picture.mode, picture.size) == ("RGB", (240, 80))
    assert picture.crop((0, 0, 4, 80)).getcolors() == [(320, (255, 255, 255))]
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black"}):  # the user's own settings
        assert drawn([1, 2]).tobytes() == picture.tobytes()
    assert drawn([2, 1]).tobytes() != picture.tobytes()
    assert drawn([1], rows=3, columns=1).size == (120, 240)


@pytest.mark.parametrize("width", [0, 20, 60, 500])
def test_text_is_cut_to_its_width(width):
    text = "a name of some length"
    cut = cut_text(text, 12, width)
    whole = font_of(12).getlength(text) <= width
    assert cut == text if whole else cut.endswith("…") and text.startswith(cut[:-1])
    assert font_of(12).getlength(cut) <= max(width, font_of(12).getlength("…"))
