"""Photos of exported models: what was drawn from the data is drawn again from the folder."""

import torch

from protometry.explanations.unit_view import BoxView
from protometry.explanations.views import png, to_image
from protometry.reports.stored_sources import StoredSources
from protometry.run_folder.model_folder import PHOTOS, StoredSource


def test_the_parts_of_a_unit_are_drawn_again(tmp_path):
    picture = to_image(torch.rand(3, 40, 40, generator=torch.Generator().manual_seed(0)))
    (tmp_path / PHOTOS).mkdir()
    (tmp_path / PHOTOS / "3.png").write_bytes(png(picture))
    box, parts = (4, 8, 23, 15), ((4, 8, 7, 11), (20, 12, 23, 15))
    facts = {"sample_id": "a", "class_name": "b", "part": None, "origin": "projected onto", "stale": False}
    stored = StoredSource(unit=3, photo="3.png", box=[*box], parts=[[*one] for one in parts], crop=[*box], **facts)
    view = StoredSources(tmp_path, [stored], None, 80).of([3])[3].view
    assert view.photo.tobytes() == BoxView(picture, box, 80, parts=parts).photo.tobytes()
    assert view.parts == parts
