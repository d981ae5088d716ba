"""Photos of exported models: what was drawn from the data is drawn again from the folder."""

import os

import pytest
import torch
from PIL import Image

from protometry.evaluation.explained.stored_sources import StoredSources
from protometry.explanations.unit_view import BoxView
from protometry.explanations.views import png, to_image
from protometry.run_folder.model_folder import PHOTOS, ModelDescription, StoredSource

BOX, PARTS = (4, 8, 23, 15), ((4, 8, 7, 11), (20, 12, 23, 15))


@pytest.fixture
def photo(tmp_path):
    """The place of the photo of unit 3."""
    (tmp_path / PHOTOS).mkdir()
    return tmp_path / PHOTOS / "3.png"


def view_of(folder):
    facts = {"sample_id": "a", "class_name": "b", "part": None, "origin": "projected onto", "stale": False}
    stored = StoredSource(unit=3, photo="3.png", box=[*BOX], parts=[[*one] for one in PARTS], crop=[*BOX], **facts)
    described = ModelDescription.model_construct(sources=[stored], image_size=[40, 40])
    return StoredSources(folder, described, 80).of([3])[3].view


def test_the_parts_of_a_unit_are_drawn_again(photo, tmp_path):
    picture = to_image(torch.rand(3, 40, 40, generator=torch.Generator().manual_seed(0)))
    photo.write_bytes(png(picture))
    view = view_of(tmp_path)
    assert (view.photo.tobytes(), view.parts) == (BoxView(picture, BOX, 80, parts=PARTS).photo.tobytes(), PARTS)


def test_a_photo_that_is_huge_or_no_file_is_not_decoded(photo, tmp_path):
    Image.new("1", (10_000, 15_000)).save(photo)
    with pytest.raises(ValueError, match=r"its 15000x10000 pixels are not those of \(40, 40\)"):
        view_of(tmp_path)
    photo.unlink()
    os.mkfifo(photo)
    with pytest.raises(ValueError, match=r"it is a folder, a pipe or a device\. Export the model again"):
        view_of(tmp_path)
