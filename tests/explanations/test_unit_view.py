"""What a unit saw, drawn: where the box, the colours and the crop are, and that equal inputs give equal bytes."""

import pytest
import torch

from protometry.explanations import Random, Upsample, unit_tile, unit_view, unit_views
from protometry.explanations.heat import heat_map, scale_of
from protometry.explanations.unit_view import part_in
from protometry.explanations.views import png
from protometry.lightning_modules import Classifier, DeformableProtoPNet
from protometry.metrics.functional import bounding_boxes, clip_saliency

BOX_COLOUR, WHITE = (255, 140, 0), (255, 255, 255)


def planted(height=40, width=40, box=(8, 4, 11, 7)):
    """A black image with a white square, and a map that is 1 there and 0 elsewhere."""
    image, saliency = torch.zeros(3, height, width), torch.zeros(height, width)
    x0, y0, x1, y1 = box
    image[:, y0 : y1 + 1, x0 : x1 + 1], saliency[y0 : y1 + 1, x0 : x1 + 1] = 1.0, 1.0
    return image, saliency


def colours(picture):
    return {colour for _, colour in picture.getcolors(picture.width * picture.height)}


def test_box_crop_and_heat_are_where_the_map_is():
    view = unit_view(*planted(), size=80)
    assert view.box == (8, 4, 11, 7)
    # at twice the size the box lies at 16..23, 8..15
    assert view.photo.getpixel((16, 8)) == view.photo.getpixel((23, 15)) == BOX_COLOUR
    assert view.photo.getpixel((15, 7)) != BOX_COLOUR
    # 40 % of 40 pixels about columns 8..11 and rows 4..7, moved down by two: columns 2..17 and rows 0..15, five times
    assert view.crop.size == (80, 80)
    assert [view.crop.getpixel(place) for place in ((40, 30), (70, 30), (40, 70))] == [WHITE, (0, 0, 0), (0, 0, 0)]
    # orange is (217, 95, 2), over the white square in grey: 0.4 * 255 + 0.6 * colour
    assert view.heat.size == (40, 40)  # as large as the image, since nothing is gained by enlarging it
    assert view.heat.getpixel((10, 6)) == pytest.approx((232, 159, 103), abs=1)
    assert view.heat.getpixel((30, 30)) == pytest.approx((153, 153, 153), abs=1)  # white over black
    assert view.legend == "orange: above 0, blue: below"


def test_parts_are_drawn_in_the_box_around_them():
    """Two cells of 4 pixels, at (4, 8) and (20, 12); at twice the size their corners are at (8, 16) and (47, 31)."""
    view = unit_view(*planted(), size=80, parts=((4, 8, 7, 11), (20, 12, 23, 15)))
    assert view.box == (4, 8, 23, 15)
    assert view.photo.getpixel((8, 16)) == view.photo.getpixel((15, 23)) == view.photo.getpixel((47, 31)) == BOX_COLOUR
    assert view.photo.getpixel((28, 16)) != BOX_COLOUR  # on the border of the box between the parts
    assert view.heat.tobytes() == unit_view(*planted(), size=80).heat.tobytes()


def test_views_of_units_of_parts_show_where_they_were_found():
    model = DeformableProtoPNet(num_classes=4, image_size=(32, 48), prototypes_per_class=1, hidden=2).eval()
    images = torch.rand(2, 3, 32, 48, generator=torch.Generator().manual_seed(0))
    views = unit_views(Upsample(), model, images, torch.tensor([[3, 1], [0, 2]]))
    cells = model(images).cells[1, 2].tolist()
    boxes = [model.geometry.cell_box(cell // 6, cell % 6) for cell in cells]
    assert list(views[1][1].parts) == boxes
    assert (
        views[0][1].box
        == (*(min(edges) for edges in zip(*views[0][1].parts, strict=True)),)[:2]
        + (*(max(edges) for edges in zip(*views[0][1].parts, strict=True)),)[2:]
    )


def test_the_box_is_that_of_the_metrics():
    saliency = torch.randn(3, 24, 32, generator=torch.Generator().manual_seed(1)).cumsum(1).cumsum(2)
    boxes = bounding_boxes(clip_saliency(saliency) > 0)
    views = [unit_view(torch.zeros(3, 24, 32), one) for one in saliency]
    assert [list(view.box) for view in views] == boxes.tolist()


@pytest.mark.parametrize("value", [0.0, 3.0, -1.0])
def test_a_flat_map_has_no_box_and_shows_the_whole_image(value):
    image, _ = planted(20, 40)
    view = unit_view(image, torch.full((20, 40), value), size=80)
    assert (view.box, view.legend) == (None, "the map is flat")
    assert BOX_COLOUR not in colours(view.photo)
    assert view.crop.tobytes() == view.photo.tobytes()
    assert view.photo.size == (80, 40)


def test_maps_are_white_at_zero():
    saliency = torch.tensor([[-2.0, 0.0, 1.0, 2.0]])
    assert scale_of(saliency) == 2.0
    heat = heat_map(torch.zeros(3, 1, 4), saliency) / 0.6 * 255
    expected = [[33, 85, 189], [255, 255, 255], [236, 175, 128.5], [217, 95, 2]]
    assert torch.allclose(heat[:, 0].T, torch.tensor(expected), atol=0.1)
    assert torch.allclose(heat_map(torch.zeros(3, 1, 2), torch.zeros(1, 2)), torch.tensor(0.6))


def test_single_bright_pixels_do_not_darken_a_map():
    saliency = torch.ones(40, 50)
    saliency[0, :10] = 1000.0
    assert scale_of(saliency) == 1.0  # of 2,000 pixels, the 20th largest
    saliency = torch.zeros(40, 50)
    saliency[0, 0] = 7.0
    assert scale_of(saliency) == 7.0


def test_views_of_a_model_are_those_of_its_maps():
    model, images = Classifier(num_classes=4, image_size=(32, 32)).eval(), torch.rand(2, 3, 32, 32)
    ids, explainer = torch.tensor([[3, 5], [4, 3]]), Upsample()
    maps = model(images).maps
    for image, row, views, own in zip(images, ids, unit_views(explainer, model, images, ids), maps, strict=True):
        for unit, view in zip(row, views, strict=True):
            enlarged = explainer.enlarge(model, own[unit][None], image[None])[0]
            assert png(view.heat) == png(unit_view(image, enlarged).heat)
    with pytest.raises(ValueError, match="sample_ids"):
        unit_views(Random(), model, images, ids)


def test_part_names():
    sample = {
        "part_points": torch.tensor([[3.9, 2.0], [9.0, 9.0], [2.0, 2.0]]),
        "part_visible": torch.tensor([1, 1, 0]) > 0,
    }
    names = ["beak", "tail", "eye"]
    assert part_in((1, 1, 3, 3), sample, names) == "beak"  # the hidden eye is nearer
    assert part_in((4, 1, 8, 8), sample, names) is None
    assert part_in((0, 0, 9, 9), sample, names) == "beak and tail"
    points, four = torch.arange(4.0)[:, None].expand(4, 2), ["beak", "tail", "eye", "leg"]
    many = {"part_points": points, "part_visible": points[:, 0] >= 0}
    assert part_in((0, 0, 2, 2), many, four) == "tail, beak and eye"
    assert part_in((0, 0, 3, 3), many, four) == "tail, eye and 2 more parts"
    assert part_in(None, sample, names) is part_in((0, 0, 9, 9), {}, names) is part_in((0, 0, 9, 9), sample, []) is None


def test_a_tile_has_the_same_size_for_every_caption_and_repeats_bit_for_bit():
    view = unit_view(*planted(), size=64)
    tile, silent = unit_tile(view, "prototype 3", "x" * 500), unit_tile(view)
    assert tile.size == silent.size == (3 * 64 + 8, 64 + 32)
    assert tile.crop((0, 64, tile.width, tile.height)).getextrema()[0] == (0, 255)
    assert colours(silent.crop((0, 64, silent.width, silent.height))) == {WHITE}
    assert png(tile) == png(
        unit_tile(unit_view(*planted(), size=64), "prototype\n3", "x" * 500)
    )  # a line break in a name


def test_a_map_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"`saliency` to be as large as the image, \(40, 40\), but got \(20, 40\)"):
        unit_view(torch.zeros(3, 40, 40), torch.zeros(20, 40))
