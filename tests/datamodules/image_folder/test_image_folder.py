import json
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protometry.datamodules.check.check import check_data
from protometry.datamodules.image_folder.data_module import WITH_PUBLISHED_NUMBERS, ImageFolder, ImageFolderDataset
from protometry.datamodules.image_folder.own_folder import read_classes
from protometry.datamodules.photos.class_attributes import read_attribute_table
from protometry.datamodules.photos.folders import images_below, visible_folders
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.views import Stratified
from tests.photo_trees import make_flat, make_folders, photo, write_attributes

ROOT = Path(__file__).parents[3]


def folder(root, **options):
    return ImageFolder(str(root), **{"image_size": 16, **options})


def ids(data, split):
    return data.dataset(split).sample_ids


class TestLayouts:
    def test_class_folders_are_divided(self, tmp_path):
        root = make_folders(tmp_path / "root")
        photo(root / "bee/deep/er/9.PNG", 99)
        (root / "bee/notes.txt").write_text("not an image")
        photo(root / "bee/.thumbnails/0.jpg", 1)
        photo(root / ".cache/x/0.jpg", 1)
        data = folder(root)
        data.setup()
        assert (data.class_names, data.num_classes, data.scheme) == (["ant", "bee"], 2, "cv70")
        assert data.photos.sample_ids == [
            *(f"ant/{i}.jpg" for i in range(8)),
            *(f"bee/{i}.jpg" for i in range(8)),
            "bee/deep/er/9.PNG",
        ]
        assert data.photos.table.labels.tolist() == [0] * 8 + [1] * 9
        assert len(ids(data, "test")) == 6  # 30 % of 17, rounded up
        assert data.split_record()["folds"] == 4

    def test_three_folders_are_kept(self, tmp_path):
        root = make_folders(tmp_path / "root", {"train": 3, "val": 2, "test": 1})
        data = folder(root)
        for part, count in (("train", 3), ("val", 2), ("test", 1)):
            assert ids(data, part) == [f"{part}/{name}/{i}.jpg" for name in ("ant", "bee") for i in range(count)]
        assert data.scheme == "official"
        everything = folder(root, fold=None)
        assert len(ids(everything, "train")) == 10  # without a validation part its photos train
        assert not everything.has_validation

    @pytest.mark.parametrize("part", ["val", "test"])
    def test_two_folders(self, tmp_path, part):
        data = folder(make_folders(tmp_path / "root", {"train": 5, part: 2}))
        assert ids(data, "test") == [f"{part}/{name}/{i}.jpg" for name in ("ant", "bee") for i in range(2)]
        val = ids(data, "val")
        assert [name.split("/")[:2] for name in val] == [["train", "ant"], ["train", "bee"]]  # round(.2 x 5) each
        assert len(ids(data, "train")) == 8

    def test_pooling_split_folders(self, tmp_path):
        data = folder(make_folders(tmp_path / "root", {"train": 6, "val": 4}), scheme="cv70")
        assert sum(len(ids(data, part)) for part in ("train", "val", "test")) == 20
        assert data.split_record()["scheme"] == "cv70"

    def test_flat(self, tmp_path):
        root = make_flat(tmp_path / "root")
        photo(root / "more/bee_9.jpg", 1)  # folders are not looked into
        data = folder(root, layout="flat")
        data.setup()
        assert (data.class_names, data.photos.table.labels.tolist()) == (["ant", "bee"], [0] * 8 + [1] * 8)
        assert data.photos.sample_ids[9] == "bee_1.JPEG"
        photo(root / "nothing.jpg", 1)
        with pytest.raises(ValueError, match=r"nothing\.jpg does not begin with its class and `_`"):
            folder(root, layout="flat").prepare_data()

    def test_everything_for_test(self, tmp_path):
        data = folder(make_flat(tmp_path / "root", per_class=1), layout="flat", scheme="test")
        assert ids(data, "test") == ["ant_0.JPEG", "bee_0.JPEG"]
        assert not data.has_validation
        assert data.class_weights.tolist() == [1, 1]
        with pytest.raises(ValueError, match="images in the train split, but `scheme: test` leaves none there"):
            data.dataset("train")

    def test_links_in_a_circle_stop(self, tmp_path):
        root = make_folders(tmp_path)
        (root / "ant/l").symlink_to(root / "bee")
        (root / "bee/l").symlink_to(root / "ant")
        (root / "all").symlink_to(root)
        with pytest.warns(UserWarning, match="links to a folder above it and is left out"):
            found = images_below(root, Problems("toy", ""))
        assert found == sorted([f"{place}/{i}.jpg" for place in ("ant", "ant/l", "bee", "bee/l") for i in range(8)])
        assert visible_folders(root) == ["ant", "bee"]

    def test_copies_are_known_by_their_pixels_and_told_apart_by_what_is_wrong_with_them(self, tmp_path, private_cache):
        root = make_folders(tmp_path / "root", {"train": 3, "test": 3})
        for copied, to in (
            ("train/ant/0", "train/bee/9"),
            ("train/ant/1", "train/ant/8"),
            ("train/bee/2", "test/ant/7"),
        ):
            with Image.open(root / f"{copied}.jpg") as picture:
                picture.save(root / f"{to}.png")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            folder(root).prepare_data()
        said = "\n".join(str(each.message) for each in caught)
        for text in (
            "(1 of them), so results are not on new photos only: train/bee/2.jpg (train) is test/ant/7.png (test)",
            "(2 of them), one of which is wrong: train/bee/2.jpg (bee) is test/ant/7.png (ant); train/bee/9",
            "there more than once (1 of them) and count as often: train/ant/8.png is train/ant/1.jpg. List one of each",
        ):
            assert text in said

    def test_a_photo_in_two_parts_is_warned_of_at_every_start(self, tmp_path, private_cache):
        root = make_folders(tmp_path / "root", {"train": 3, "val": 2, "test": 2}, ("ant", "Ant"))
        shutil.copy(root / "train/ant/0.jpg", root / "test/ant/1.jpg")
        shutil.copy(root / "test/ant/0.jpg", root / "test/Ant/0.jpg")  # in one part
        (root / "val/Ant/0.jpg").unlink()
        (root / "val/Ant/0.jpg").symlink_to(root / "test/Ant/1.jpg")
        link, copied = (
            "val/Ant/0.jpg (val) is test/Ant/1.jpg (test)",
            "train/ant/0.jpg (train) is test/ant/1.jpg (test)",
        )
        shared = f"Photos of .*root are in two parts .2 of them., .*: {re.escape(link)}; {re.escape(copied)}. List"
        for _ in range(2):  # the second time, what was found is remembered
            with (
                pytest.warns(UserWarning, match=shared),
                pytest.warns(UserWarning, match="Classes of .*root differ only in case, .*: 'Ant' and 'ant'"),
            ):
                folder(root).prepare_data()

    def test_copies_that_were_saved_again_or_resized_are_found(self, tmp_path, private_cache):
        root = make_folders(tmp_path / "root", {"train": 3, "test": 2}, ("ant", "bee"))
        noise = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
        photo = Image.fromarray(noise).resize((240, 200), Image.Resampling.BICUBIC)
        photo.save(root / "train/ant/one.png")
        photo.save(root / "train/bee/two.jpg", quality=75)
        photo.resize((180, 150)).save(root / "test/ant/three.jpg")
        with (
            pytest.warns(UserWarning, match=r"are in two parts .\d of them., .*three\.jpg"),
            pytest.warns(UserWarning, match=r"are in two classes .\d of them., .*two\.jpg"),
        ):
            folder(root).prepare_data()

    def test_names_that_break_lines_are_refused(self, tmp_path):
        root = make_folders(tmp_path / "root", {"train": 3, "test": 2}, ("ant", "a\nbee"))
        with pytest.raises(ValueError, match=r"'train/a\\nbee/0.jpg' has a line break or another control character"):
            folder(root).prepare_data()


class TestOwnPhotos:
    def test_small_classes_are_divided_too(self, tmp_path, caplog):
        root = make_folders(tmp_path / "flowers", {"": 5}, ("ant", "bee", "fly"))
        data = folder(root)
        with caplog.at_level("INFO"):
            data.setup()
            assert not caplog.text  # an evaluation does not say it again
            data.setup("fit")
            data.setup("fit")
        assert caplog.text.count("flowers: classes are too small for four folds; 30 %") == 1
        assert [len(ids(data, part)) for part in ("train", "val", "test")] == [6, 3, 6]
        assert data.split_record()["scheme"] == "few"
        with pytest.raises(ValueError, match="at least 4 samples in the 70 %"):
            folder(root, scheme="cv70").setup()  # published schemes stay as they are

    def test_long_tail_is_noted(self, tmp_path, caplog):
        root = make_folders(tmp_path / "flowers", {"train": 2, "test": 1})
        for number in range(40):
            photo(root / f"train/ant/more{number}.jpg", number)
        with caplog.at_level("INFO"):
            folder(root).setup("fit")
        assert "flowers: 34 training photos show 'ant', but only 1 'bee'. `--model.class_weights true`" in caplog.text

    def test_results_name_the_folder(self, tmp_path, monkeypatch):
        root = make_folders(tmp_path / "flowers")
        assert (folder(root).dataset_name, folder(root).file_of("ant/0.jpg")) == ("flowers", root / "ant/0.jpg")
        assert folder(root).split_record()["dataset"] == "image_folder"  # split files stay valid where a folder moves
        monkeypatch.chdir(root)
        assert (folder(".").title, folder("../cub200").dataset_name) == ("flowers", "cub200 (own photos)")
        records = json.loads((ROOT / "evaluation/published/published.json").read_text())
        records = records if isinstance(records, list) else records["records"]
        assert {record["dataset"] for record in records} - {"all"} == set(WITH_PUBLISHED_NUMBERS)


class TestClasses:
    def test_file_fixes_the_order(self, tmp_path):
        root = make_folders(tmp_path / "root", classes=("n01440764", "n01443537", "n02085620"))
        path = tmp_path / "classes.txt"
        path.write_text("n02085620 Chihuahua\n\nn01440764 tench, Tinca tinca\nn01443537 goldfish\n")
        data = folder(root, class_file=str(path))
        data.setup()
        assert data.class_names == ["Chihuahua", "tench, Tinca tinca", "goldfish"]
        assert data.photos.table.labels.tolist() == [1] * 8 + [2] * 8 + [0] * 8

    def test_names_alone_may_have_spaces(self, tmp_path):
        (tmp_path / "classes.txt").write_text("grizzly bear\r\nbat\r\n")
        assert read_classes(tmp_path / "classes.txt") == (["grizzly bear", "bat"],) * 2

    def test_more_classes_than_folders(self, tmp_path):
        (tmp_path / "classes.txt").write_text("ant\nbat\nbee\n")
        root = make_folders(tmp_path / "root")
        options = {"class_file": str(tmp_path / "classes.txt")}
        data = folder(root, scheme="test", **options)
        assert (data.num_classes, {int(data.dataset("test")[i]["label"]) for i in range(16)}) == (3, {0, 2})
        with pytest.raises(ValueError, match=r"at least 3 samples for training, .*, but .*'bat' with 0"):
            folder(root, **options).setup()

    def test_unknown_class(self, tmp_path):
        (tmp_path / "classes.txt").write_text("bee\n")
        root = make_folders(tmp_path / "root")
        with pytest.raises(ValueError, match=r"1 problem:\n  class 'ant' of ant/7\.jpg is not in .*classes\.txt"):
            folder(root, class_file=str(tmp_path / "classes.txt")).prepare_data()
        split = make_folders(tmp_path / "split", {"train": 3, "val": 2})
        photo(split / "val/wasp/0.jpg", 1)
        with pytest.raises(ValueError, match=r"class 'wasp' of val/wasp/0\.jpg is not in .*train"):
            folder(split).prepare_data()

    @pytest.mark.parametrize(("text", "found"), [("", "none"), ("a\nb\na\n", "'a' several times")])
    def test_bad_file(self, tmp_path, text, found):
        (tmp_path / "classes.txt").write_text(text)
        with pytest.raises(ValueError, match=f"different classes, one per line, but got {found}"):
            read_classes(tmp_path / "classes.txt")
        with pytest.raises(FileNotFoundError, match="`class_file` to be a file"):
            read_classes(tmp_path / "none.txt")


class TestAttributes:
    def test_labels(self, tmp_path):
        table = write_attributes(tmp_path / "a.csv", {"bee": [0, 1, 1], "wasp": [0, 1, 0], "ant": [1, 0, 0]})
        data = folder(make_folders(tmp_path / "root"), attribute_table=str(table))
        assert (data.num_classes, data.class_names) == (3, ["small", "striped", "furry"])
        data.setup()
        assert data.photos.table.class_names == ["ant", "bee"]
        assert data.tables.class_concepts_binary.tolist() == [[True, False, False], [False, True, True]]
        assert data.tables.class_attributes.tolist() == data.tables.class_concepts.tolist() == [[1, 0, 0], [0, 1, 1]]
        assert data.class_weights.tolist() == [1, 1, 1]
        for split in ("train", "test"):
            for sample in (data.dataset(split)[i] for i in range(3)):
                assert sample["labels"].tolist() == data.tables.class_concepts_binary[sample["label"]].tolist()

    def test_classes_stay_the_labels_on_request(self, tmp_path):
        table = write_attributes(tmp_path / "a.csv", {"bee": [0, 1, 0.5], "ant": [1, 0.25, 0]})
        data = folder(make_folders(tmp_path / "root"), attribute_table=str(table), task="single")
        assert (data.class_names, data.tables.class_concepts.tolist()) == (["ant", "bee"], [[1, 0.25, 0], [0, 1, 0.5]])
        sample = data.dataset("train")[0]
        assert "labels" not in sample
        assert sample["concepts"].tolist() == [[True, False, False], [False, True, True]][sample["label"]]
        assert data.capabilities("train").missing("concepts_class") is None

    @pytest.mark.parametrize(("rows", "match"), [
        ({"ant": [1, 0, 0]}, "a row for each of the 2 classes, but got none for 1; the first is 'bee'"),
        ({"ant": [1, 0], "bee": [1, 0, 0]}, "the row of 'ant' is none"),
        ({"ant": [1, 0, 1.5], "bee": [1, 0, 0]}, "the row of 'ant' is none"),
        ({"ant.0": [1, 0, 0], "bee": [1, 0, 0]}, "the first is 'ant'. It has ant.0: write both in one way"),
    ])  # fmt: skip
    def test_bad_table(self, tmp_path, rows, match):
        table = write_attributes(tmp_path / "a.csv", rows)
        with pytest.raises(ValueError, match=match):
            folder(make_folders(tmp_path / "root"), attribute_table=str(table)).prepare_data()

    @pytest.mark.parametrize(("text", "said"), [
        ('class,small\n"ant' + "\nbee,1" * 30_000, r"to be a comma-separated table, but field larger .*; is a quote"),
        (",class,small\n0,ant,1\n", "its first column has no name, such as the numbers of rows that pandas"),
        ("", "but got 0 attributes and 0 rows"), (None, "`attribute_table` to be a file"),
    ])  # fmt: skip
    def test_no_table(self, tmp_path, text, said):
        if text is not None:
            (tmp_path / "a.csv").write_text(text)
        with pytest.raises((ValueError, FileNotFoundError), match=said):
            read_attribute_table(tmp_path / "a.csv", ["ant"])

    def test_cells_between_semicolons(self, tmp_path):
        (tmp_path / "a.csv").write_text("class;small, dark;red\nant;1;0.5\n")
        assert read_attribute_table(tmp_path / "a.csv", ["ant"]).names == ["small, dark", "red"]


class TestRoot:
    @pytest.fixture
    def root(self, tmp_path):
        return make_folders(tmp_path / "data/insects", {"train": 3, "val": 2})

    def test_part_alone_on_request(self, root):
        data = folder(root / "train", scheme="official")
        with pytest.raises(ValueError, match="`scheme` to be 'cv70', as train has no official split"):
            data.setup()
        assert len(ImageFolderDataset(str(root / "train"), parts=False)) == 6

    @pytest.mark.parametrize(
        "names", ["Train Val", "train valid", "val test", "training validation", "TRAIN test", "train val Test", "val"]
    )
    def test_parts_by_other_names(self, tmp_path, names):
        root = make_folders(tmp_path / "root", dict.fromkeys(names.split(), 5))
        with pytest.raises(FileNotFoundError, match=r"holds [\w, ]+\. Name the parts `train`, `val` and `test`"):
            folder(root).prepare_data()

    def test_a_class_may_be_called_train(self, tmp_path):
        data = folder(make_folders(tmp_path / "root", classes=("car", "train")))
        data.prepare_data()
        assert data.class_names == ["car", "train"]

    @pytest.mark.parametrize("part", ["val", "test"])
    def test_part_without_class_folders(self, tmp_path, part):
        root = make_folders(tmp_path / "root", {"train": 5, "val": 2, "test": 2})
        shutil.rmtree(root / part)
        (root / part).mkdir()
        with pytest.raises(ValueError, match=f"1 problem:\n  {part}/ holds no class folders; fill it or remove it"):
            folder(root).prepare_data()

    def test_empty_class_and_stray_image(self, tmp_path):
        root = make_folders(tmp_path / "root")
        (root / "wasp").mkdir()
        photo(root / "stray.jpg", 1)
        with pytest.raises(ValueError, match=r" stray\.jpg lies in no class folder\.\n  class 'wasp' has 0"):
            folder(root).prepare_data()


class TestTooDeepOrTooFew:
    def test_one_folder_too_deep(self, tmp_path):
        root = make_folders(tmp_path / "parts", {"train/images": 4, "test/images": 2})
        with pytest.raises(ValueError, match="one folder too deep, as in test/images/ant/; move it up, into"):
            _ = folder(root).num_classes
        root = make_folders(tmp_path / "plain/photos")
        (root.parent / "labels").mkdir()
        with pytest.raises(ValueError, match=rf"too deep, as in photos/ant/; use `root: {root}`\.\n  class 'lab"):
            _ = folder(root.parent).num_classes

    def test_one_class(self, tmp_path):
        data = folder(make_folders(tmp_path / "root", {"train": 4, "test": 2}, ("ant",)))
        for check in (check_data, lambda data: data.num_classes):
            with pytest.raises(ValueError, match=r".*root to hold at least 2 classes, but got only ant\. Add photos"):
                check(data)
        assert len(data.dataset("test")) == 2  # such as test images of a model that knows other classes, too

    def test_only_a_folder_of_photos_points_to_the_one_above(self, tmp_path):
        root = make_folders(tmp_path / "root", {"": 2}, ("ant",))
        with pytest.raises(FileNotFoundError, match=r"class folders, at least 2, but .*root holds ant\.$"):
            folder(root).prepare_data()
        with pytest.raises(FileNotFoundError, match=rf"holds no folders\. Use `root: {root}`"):
            folder(root / "ant").prepare_data()

    def test_two_encodings_of_one_name(self, tmp_path):
        names = ("caf\u00e9", "cafe\u0301")
        for layout, root in (
            ("folders", make_folders(tmp_path / "a", None, names)),
            ("flat", make_flat(tmp_path / "b", 1, names)),
        ):
            with pytest.raises(ValueError, match=r"'caf\u00e9\S*' twice, as 'cafe.u0301\S*' and as 'caf.xe9\S*'; keep"):
                folder(root, layout=layout).setup()


def test_a_fingerprint_tells_test_images_and_classes_apart(tmp_path):
    def fingerprint(name, **classes):
        root = make_folders(tmp_path / name, {"train": 2, "val": 1, "test": 2}, **classes)
        before = folder(root).fingerprint
        photo(root / "train/ant/0.jpg", 1).unlink()
        assert folder(root).fingerprint == before
        return root, before

    root, one = fingerprint("one")
    assert fingerprint("copy")[1] == one
    assert fingerprint("renamed", classes=("ant", "wasp"))[1] != one
    with (root / "test/ant/0.jpg").open("ab") as file:
        file.write(b"\0")
    assert folder(root).fingerprint != one


def test_a_fingerprint_tells_pixels_apart_in_files_of_equal_names_and_sizes(tmp_path):
    """Also of some of the images, as where a model knows some of the classes."""

    def contents(grey):
        root = tmp_path / str(grey)
        for name in ("ant", "bee", "cat"):
            for i in range(3):
                photo(root / name / f"{i}.bmp", grey)
        data = folder(root, scheme="test")
        return data.fingerprint, Stratified(data.dataset("test"), 3).contents

    (one, some), (other, others) = contents(1), contents(2)
    assert one != other
    assert not set(some) & set(others)
