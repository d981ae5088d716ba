import json

import pytest

from protometry.datamodules.funnybirds.tables import read_classes, read_scenes

VARIANTS = {
    "beak": [{"model": "beak01.glb", "color": "yellow"}, {"model": "beak02.glb", "color": "yellow"}],
    "eye": [{"model": "eye01.glb"}],
    "foot": [{"model": "foot01.glb"}, {"model": "foot02.glb"}],
    "tail": [{"model": "tail01.glb", "color": "red"}, {"model": "tail01.glb", "color": "green"}],
    "wing": [{"model": "wing01.glb", "color": "red"}],
}
FIRST = {"beak": 0, "eye": 0, "foot": 0, "tail": 0, "wing": 0}
CLASSES = [{"class_idx": 0, "parts": FIRST}, {"class_idx": 1, "parts": {**FIRST, "beak": 1, "tail": 1}}]


def bird(**parts):
    return {"class_idx": 1, "parts": {**FIRST, **parts}}


ENTRY = {
    "class_idx": 1, "beak_model": "beak02.glb", "beak_color": "yellow", "eye_model": "eye01.glb",
    "foot_model": "foot01.glb", "tail_model": "tail01.glb", "tail_color": "green", "wing_model": "wing01.glb",
    "wing_color": "red", "bg_objects": "4,0,3,",
}  # fmt: skip
NO_BEAK = {**ENTRY, "beak_model": "placeholder", "beak_color": "placeholder"}
NO_WING = {**ENTRY, "wing_model": "", "bg_objects": ""}


@pytest.fixture
def tables(tmp_path):
    """Writes tables, those given instead of sound ones, and returns their folder."""

    def write(**changed):
        sound = {"parts": VARIANTS, "classes": CLASSES, "dataset_train": [ENTRY, NO_BEAK], "dataset_test": [NO_WING]}
        for name, content in {**sound, **changed}.items():
            if content is not None:
                text = content if isinstance(content, str) else json.dumps(content)
                (tmp_path / f"{name}.json").write_text(text)
        return str(tmp_path)

    return write


class TestClasses:
    def test_read(self, tables):
        classes = read_classes(tables())
        assert (classes.table.tolist(), classes.official) == ([[0, 0, 0, 0, 0], [1, 0, 0, 1, 0]], [0, 1])
        assert classes.variant_names["tail"] == ["red tail01", "green tail01"]
        assert classes.variant_names["eye"] == ["eye01"]

    def test_part_order_does_not_depend_on_the_file(self, tables):
        backwards = {part: VARIANTS[part] for part in reversed(VARIANTS)}
        classes = read_classes(tables(parts=backwards))
        assert list(classes.variants) == ["beak", "eye", "foot", "tail", "wing"]
        assert classes.table.tolist() == [[0, 0, 0, 0, 0], [1, 0, 0, 1, 0]]

    def test_subset(self, tables):
        assert read_classes(tables(subset={"official_class_idx": [11, 45]})).official == [11, 45]

    @pytest.mark.parametrize(("changed", "message"), [
        ({"classes": CLASSES[::-1]}, r"entry 0: expected `class_idx` to be 0, but got 1"),
        ({"classes": CLASSES[:1]}, r"classes\.json .* at least 2 items"),
        ({"classes": {}}, r"classes\.json .* valid list"), ({"classes": [1, 2]}, r"classes\.json .*`0`"),
        ({"classes": [CLASSES[0], bird(tail=2)]}, r"entry 1: expected the variant of tail to be 0 to 1 .*got 2"),
        ({"classes": [CLASSES[0], bird(beak=-1)]}, "variant of beak to be 0 to 1 .* but got -1"),
        ({"classes": [CLASSES[0], bird(beak=True)]}, r"`1\.parts\.beak`: .*got True"),
        ({"classes": [CLASSES[0], bird(horn=0)]}, r"`1\.parts\.horn"),
        ({"classes": [CLASSES[0], {"class_idx": 1, "parts": {"beak": 0}}]}, r"`1\.parts`: .* at least 5 items"),
        ({"parts": {**VARIANTS, "horn": []}}, r"parts\.json .*`horn"),
        ({"parts": {**VARIANTS, "eye": [{}]}}, r"lacks `eye\.0\.model`"),
        ({"parts": {**VARIANTS, "eye": VARIANTS["eye"] * 2}}, "variants of eye to differ in model or color"),
        ({"parts": {**VARIANTS, "tail": [{"model": "tail01.glb", "color": 3}]}}, r"`tail\.0\.color`: .*got 3"),
        ({"parts": "[" * 100_000}, r"parts\.json to hold strict JSON, but maximum recursion"),
        ({"parts": '{"beak": ['}, r"parts\.json to hold strict JSON, but Expecting value"),
        ({"subset": {"official_class_idx": [1]}}, r"subset\.json: expected .* 2 integers"),
        ({"subset": {}}, "lacks `official_class_idx`"),
    ])  # fmt: skip
    def test_wrong_tables(self, tables, changed, message):
        with pytest.raises(ValueError, match=message):
            read_classes(tables(**changed))

    def test_missing_table(self, tables):
        with pytest.raises(FileNotFoundError, match=r"parts\.json is missing; it is part of FunnyBirds\.zip"):
            read_classes(tables(parts=None))


class TestScenes:
    def test_read(self, tables):
        scenes = read_scenes(read_classes(tables()))
        train, test = scenes["train"], scenes["test"]
        assert (train.labels.tolist(), train.kept.tolist()) == ([1, 1], [[True] * 5, [False, True, True, True, True]])
        assert train.objects.tolist() == [3, 3]
        assert (test.kept.tolist(), test.objects.tolist()) == ([[True, True, True, True, False]], [0])
        assert [train.sample_id(row) for row in (0, 1)] == ["train/1/000000.png", "train/1/000001.png"]

    @pytest.mark.parametrize(("entry", "message"), [
        ({**ENTRY, "class_idx": 2}, "expected `class_idx` 0 to 1, but got 2"),
        ({**ENTRY, "class_idx": None}, "expected `class_idx` 0 to 1, but got None"),
        ("bird", "expected `class_idx` 0 to 1, but got None"),
        ({**ENTRY, "beak_model": "beak01.glb"}, ".*the beak of class 1, .* but got beak01.glb yellow"),
        ({**ENTRY, "tail_color": "red"}, ".*the tail of class 1, tail01.glb green, or .* but got tail01.glb red"),
        ({"class_idx": 1}, r"expected the eye of class 1, eye01\.glb, or placeholder, but got None"),
        ({**ENTRY, "bg_objects": "0," * 51}, "expected at most 50 `bg_objects`, but got 51"),
    ])  # fmt: skip
    def test_wrong_entry(self, tables, entry, message):
        classes = read_classes(tables(dataset_test=[ENTRY, entry]))
        with pytest.raises(ValueError, match=rf"dataset_test\.json, entry 1: {message}"):
            read_scenes(classes)

    def test_all_problems_in_one_error(self, tables):
        classes = read_classes(tables(dataset_train=None, dataset_test='[{"class_idx": 0,'))
        with pytest.raises(FileNotFoundError, match=r"(?s)2 problems:.*dataset_train\.json is missing.*strict JSON"):
            read_scenes(classes)

    def test_empty_table(self, tables):
        classes = read_classes(tables(dataset_train=[]))
        with pytest.raises(ValueError, match=r"dataset_train\.json .* at least 1 item"):
            read_scenes(classes)
