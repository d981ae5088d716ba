"""COCO's annotations beside own photos: the largest object of each, several labels, polygons, and faults."""

import json

import numpy as np
import pytest

from protometry.datamodules import ImageFolder
from protometry.datamodules.photos.polygons import polygon_mask
from tests.photo_trees import photo


class TestCoco:
    def write(self, root, **changes):
        """Photo i has a small object of category 2 and a larger one of category 1, photo 1 only the small one."""
        images = [{"id": i, "file_name": f"{i}.jpg", "width": 40, "height": 30} for i in range(4)]
        for image in images:
            photo(root / image["file_name"], image["id"] + 1)
        square = [10, 5, 20, 5, 20, 15, 10, 15]
        small = {"category_id": 2, "bbox": [1, 2, 3.5, 2], "segmentation": [[1, 2, 4, 2, 4, 4]], "area": 3}
        large = {"category_id": 1, "bbox": [10, 5, 10, 10], "segmentation": [square, [0, 0, 2, 0, 2, 2, 0, 2]]}
        large["keypoints"] = [11, 6, 2, 12, 7, 1, 0, 0, 0]
        annotations = [{"image_id": i, **small} for i in range(4)] + [{"image_id": i, **large} for i in (0, 2, 3)]
        crowd = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 40, 30], "iscrowd": 1, "segmentation": {"counts": []}}
        categories = [{"id": 2, "name": "ant"}, {"id": 1, "name": "bee", "keypoints": ["eye", "wing", "leg"]}]
        text = {"images": images, "annotations": [*annotations, crowd], "categories": categories} | changes
        (root / "coco.json").write_text(json.dumps(text))
        return ImageFolder(str(root), "flat", "test", table="coco.json", image_size=(30, 40))

    def test_largest_object(self, tmp_path):
        data = self.write(tmp_path)
        assert data.class_names == ["ant", "bee"]
        samples = [data.photos[i] for i in range(2)]
        assert [sample["labels"].tolist() for sample in samples] == [[True, True], [True, False]]
        assert [int(sample["label"]) for sample in samples] == [1, 0]
        assert [sample["bounding_box"].tolist() for sample in samples] == [[10, 5, 19, 14], [1, 2, 4, 3]]
        assert samples[0]["part_points"].tolist() == [[11, 6], [0, 0], [0, 0]]
        assert [sample["part_visible"].tolist() for sample in samples] == [[True, False, False], [False] * 3]
        assert samples[0]["object_mask"].sum() == 104
        assert samples[0]["object_mask"][5:15, 10:20].all()

    def test_one_category_each(self, tmp_path):
        one = [{"image_id": i, "category_id": 1 + i % 2} for i in range(4)]
        data = self.write(tmp_path, annotations=one)
        assert data.photos.table.labels.tolist() == [1, 0, 1, 0]
        assert not data.photos.multi_label
        reason = "no column `box` in coco.json"
        assert data.capabilities("test").missing("bounding_box") == reason

    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            ({"images": 3}, "COCO's format, with .* valid array at images"),
            ({"annotations": [{"image_id": 9, "category_id": 1}]}, r"annotations\.0: there is no image with the id 9"),
            ({"annotations": [{"image_id": 1, "category_id": 7}]}, "no category with the id 7"),
            ({"annotations": [{"image_id": 1, "category_id": 1, "bbox": [1, 2]}]}, "a `bbox` of 4 numbers"),
            (
                {"annotations": [{"image_id": 1, "category_id": 1, "keypoints": [1]}]},
                "each of the 3 `keypoints` of .*'bee'",
            ),
            ({"annotations": [{"image_id": 1, "category_id": 1, "segmentation": [[1, 2]]}]}, "3 or more pairs"),
            ({"categories": [{"id": 1, "name": "a;b"}, {"id": 2, "name": "c"}]}, "without `;`, but got 'a;b'"),
        ],
    )
    def test_faults(self, tmp_path, changes, match):
        with pytest.raises(ValueError, match=match):
            self.write(tmp_path, **changes).setup()

    def test_polygons_agree_with_another_library(self):
        from matplotlib.path import Path

        corners = np.random.default_rng(0).uniform(-3, 23, (9, 2))
        corners = corners[np.argsort(np.arctan2(*(corners - corners.mean(0)).T))]  # does not cross itself
        y, x = np.indices((18, 20)) + 0.5
        inside = Path(corners).contains_points(np.stack([x, y], axis=-1).reshape(-1, 2)).reshape(18, 20)
        assert 0.2 < inside.mean() < 0.8
        assert (polygon_mask([corners], (18, 20)) == inside).all()
