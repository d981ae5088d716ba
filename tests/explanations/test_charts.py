"""Charts: their size, and that nothing but their numbers decides their pixels."""

import matplotlib

from protometry.explanations.charts import chart, styled, to_picture


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
