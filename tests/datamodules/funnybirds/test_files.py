from itertools import combinations

import numpy as np
import pytest
from PIL import Image

from protometry.datamodules.funnybirds.files import (
    PartMap,
    Rendering,
    check_files,
    intervention_files,
    kept_file,
    no_interventions,
    no_maps,
)
from protometry.datamodules.funnybirds.tables import Scenes
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.photos.verify import ImageFile

ALL = (True,) * 5


def picture(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path)
    return path


def part_map(path, color=(170, 170, 170), size=(8, 8), **options):
    """A map with one colour in the middle, in front of the body."""
    pixels = np.zeros((*size, 3), np.uint8)
    pixels[1:-1, 1:-1] = (170, 170, 170)
    pixels[2:5, 2:5] = color
    image = picture(path.parent / "image.png", np.zeros((8, 8, 3)))
    return PartMap(
        "test/0/0.png", picture(path, pixels), image=image, **{"evaluated": False, "kept": ALL, "objects": 2, **options}
    )


@pytest.fixture
def scenes():
    """Two images of class 0, the second without beak, eye and foot, and one of class 1; 1, 0 and 2 objects."""
    kept = np.array([ALL, (False, False, False, True, True), ALL])
    return Scenes("test", np.array([0, 0, 1]), kept, np.array([1, 0, 2]))


@pytest.fixture
def tree(tmp_path, scenes):
    """All files the scenes imply, images and maps 4 x 4 pixels."""
    for row, name in enumerate(("0/000000", "0/000001", "1/000002")):
        for folder in ("test", "test_part_map"):
            picture(tmp_path / folder / f"{name}.png", np.zeros((4, 4, 3)))
        for file in intervention_files(scenes, row):
            picture(tmp_path / "test_interventions" / name / file, np.zeros((4, 4, 3)))
    return tmp_path


def found(tree, scenes, excluded=()):
    problems = Problems("birds", "Get them.")
    files = check_files(tree, scenes, excluded, problems)
    problems.raise_any()
    return files


class TestNames:
    def test_all_subsets_of_the_parts_and_all_objects(self, scenes):
        names = list(intervention_files(scenes, 0))
        assert len(set(names)) == len(names) == 33
        assert {"body_.png", "body_beak_eye_foot_tail_wing.png", "background_interventions/0.png"} <= set(names)
        parts = ("beak", "eye", "foot", "tail", "wing")
        assert {kept_file(kept) for size in range(6) for kept in combinations(parts, size)} == set(names[:32])

    def test_removed_parts_stay_removed(self, scenes):
        names = list(intervention_files(scenes, 1))
        assert names == ["body_.png", "body_tail.png", "body_wing.png", "body_tail_wing.png"]

    def test_order_of_parts_is_alphabetical(self):
        assert kept_file(["wing", "eye"]) == kept_file(["eye", "wing"]) == "body_eye_wing.png"


class TestCheckFiles:
    def test_everything_is_there(self, tree, scenes):
        files = found(tree, scenes)
        kinds = [type(file) for file in files]
        # 33 + 4 + 34 interventions
        assert [kinds.count(kind) for kind in (ImageFile, PartMap, Rendering)] == [3, 3, 71]
        (last,) = [file for file in files if isinstance(file, PartMap) and file.path.name == "000001.png"]
        assert (last.kept, last.objects) == ((False, False, False, True, True), 0)
        assert {file.sample_id for file in files} == {"test/0/000000.png", "test/0/000001.png", "test/1/000002.png"}
        assert len({file.path for file in files}) == len(files) == sum(1 for _ in tree.rglob("*.png"))

    @pytest.mark.parametrize(("name", "message"), [
        ("test/0/000001.png", r"test/0 should hold 2 images according to dataset_test\.json, but misses 1 of them"),
        ("test_part_map/1/000002.png", r"test_part_map/1 should hold 1 images .* the first is 000002\.png"),
        ("test_interventions/0/000000/body_eye_wing.png", "0/000000 should hold 32 .* the first is body_eye_wing"),
        ("test_interventions/1/000002/background_interventions/1.png", "should hold 2 .* the first is 1.png"),
    ])  # fmt: skip
    def test_missing(self, tree, scenes, name, message):
        (tree / name).unlink()
        with pytest.raises(FileNotFoundError, match=message):
            found(tree, scenes)

    @pytest.mark.parametrize(("name", "message"), [
        ("test/0/000003.png", r"test/0 should hold 2 images .* but holds 1 others; the first is 000003\.png"),
        ("test_part_map/1/000000.png", r"test_part_map/1 should hold 1 images .* holds 1 others"),
        ("test_interventions/0/000000/body_horn.png", r"holds 1 others; the first is body_horn\.png"),
        ("test_interventions/0/000000/background_interventions/1.png", r"should hold 1 images .* first is 1\.png"),
        ("test/2/000003.png", r"test/2: dataset_test\.json names no image of such a class"),
        ("test_part_map/7/000003.png", r"test_part_map/7: dataset_test\.json names no image of such a class"),
    ])  # fmt: skip
    def test_superfluous(self, tree, scenes, name, message):
        picture(tree / name, np.zeros((4, 4, 3)))
        with pytest.raises(ValueError, match=message):
            found(tree, scenes)

    def test_hidden_files_and_other_kinds_do_not_matter(self, tree, scenes):
        for name in (".DS_Store", "._000000.png", "notes.txt"):
            (tree / "test/0" / name).write_bytes(b"x")
        assert len(found(tree, scenes)) == 77

    def test_files_of_excluded_images_may_be_missing_and_are_not_verified(self, tree, scenes):
        everything = len(found(tree, scenes))
        (tree / "test/0/000000.png").unlink()  # its part map stays
        for path in (tree / "test_interventions/0/000000").rglob("*.png"):
            path.unlink()
        assert len(found(tree, scenes, {"test/0/000000.png"})) == everything - 35

    def test_optional_folders(self, tree, scenes):
        assert no_maps(tree, "test") is no_interventions(tree, "test") is None
        assert no_maps(tree, "train") == "no train_part_map/ under root"
        assert no_interventions(tree, "train") == "interventions are rendered for test images only"
        for name in ("test_part_map", "test_interventions"):
            (tree / name).rename(tree / f"{name}_elsewhere")
        assert no_maps(tree, "test") == "no test_part_map/ under root"
        assert no_interventions(tree, "test") == "no test_interventions/ under root"
        assert [type(file) for file in found(tree, scenes)] == [ImageFile] * 3


class TestPartMap:
    @pytest.mark.parametrize(("options", "message"), [
        ({"color": (9, 9, 9)}, "has an area of the color (9, 9, 9), which stands for no part"),
        ({"color": (255, 255, 0), "kept": (False, *ALL[1:])}, "shows the beak, which the table calls removed"),
        ({"color": (255, 0, 2), "kept": (True, True, False, True, True)}, "shows the foot, which"),
        ({"color": (204, 204, 206)}, "shows background object 2, but the table has 2 of them"),
        ({"color": (204, 204, 204), "objects": 0}, "shows background object 0, but the table has 0 of them"),
        ({"size": (8, 9)}, "map.png has 9x8 pixels (width x height), but its image"),
    ])  # fmt: skip
    def test_wrong(self, tmp_path, options, message):
        assert message in part_map(tmp_path / "map.png", **options).fault("decode")

    def test_objects_may_not_hide_a_bird_that_is_to_be_found(self, tmp_path):
        hidden, body = np.full((8, 8, 3), (204, 204, 205)), np.full((8, 8, 3), (170, 170, 170))
        file = part_map(tmp_path / "map.png", evaluated=True)
        picture(file.path, hidden)
        assert file.fault("decode").endswith("shows no bird, as objects hide all of it; list test/0/0.png in `exclude`")
        picture(file.path, np.concatenate([hidden[:7], body[:1]]))
        assert file.fault("decode") == ""

    def test_objects_may_hide_the_bird_but_something_must_be_there(self, tmp_path):
        file = part_map(tmp_path / "map.png")
        picture(file.path, np.full((8, 8, 3), (204, 204, 205)))
        assert file.fault("decode") == ""
        picture(file.path, np.zeros((8, 8, 3)))
        assert file.fault("decode").endswith("map.png shows nothing, neither bird nor objects that could hide it")

    def test_header_looks_at_the_size_only(self, tmp_path):
        assert part_map(tmp_path / "map.png", (9, 9, 9)).fault("header") == ""
        assert "has 9x8 pixels" in part_map(tmp_path / "map.png", size=(8, 9)).fault("header")

    def test_broken_image_is_not_reported_again(self, tmp_path):
        file = part_map(tmp_path / "map.png", size=(8, 9))
        file.image.write_bytes(b"")
        assert file.fault("decode") == ""
        file.image.unlink()
        assert file.fault("decode") == ""
