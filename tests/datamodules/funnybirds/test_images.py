import numpy as np
import pytest
import torch
from PIL import Image

from protometry.datamodules.bird_parts import InterventionDataset
from protometry.datamodules.splits import SPLITS
from tests.funnybirds_tree import read_funnybirds as module

PARTS = ["beak", "eye", "foot", "tail", "wing"]


class TestInterventions:
    @pytest.fixture
    def birds(self, tree):
        return module(tree).dataset("test")

    def test_is_an_intervention_data_set(self, birds):
        assert isinstance(birds, InterventionDataset)
        assert birds.n_classes == 8
        assert {part: len(names) for part, names in birds.parts.items()} == {
            **{"beak": 4, "eye": 3, "foot": 4, "tail": 9, "wing": 6},
        }
        assert (list(birds.parts), birds.classes[0]) == (PARTS, {"beak": 0, "eye": 0, "foot": 2, "tail": 4, "wing": 3})

    def test_image_and_label_map_are_those_of_the_sample(self, tree):
        for size in (32, 24):
            for split in SPLITS:
                birds = module(tree, image_size=size, augmentation="none").dataset(split)
                maps = module(tree, image_size=size).dataset("projection" if split == "train" else split)
                for i in range(3):
                    picture = torch.from_numpy(birds.image(i)).permute(2, 0, 1) / 255
                    torch.testing.assert_close(birds[i]["image"], picture, rtol=0, atol=1e-7)
                    assert (birds.label_map(i) == maps[i]["label_map"].numpy()).all()
                    assert (birds.label(i), birds.sample_id(i)) == (int(birds[i]["label"]), birds[i]["sample_id"])

    def test_training_images_are_not_augmented_here(self, tree):
        train, projection = module(tree).dataset("train"), module(tree).dataset("projection")
        assert (train.image(2) == projection.image(2)).all()

    def test_the_right_file_is_read(self, birds, tree):
        def pixels(path):
            with Image.open(tree / "test_interventions" / path) as image:
                return np.array(image.convert("RGB"))

        assert (birds.intervene(1, drop=["wing", "eye"]) == pixels("1/000001/body_beak_foot_tail.png")).all()
        assert (birds.intervene(2, drop=PARTS) == pixels("2/000002/body_.png")).all()
        assert (birds.intervene(3, drop={"beak"}) == pixels("3/000003/body_eye_foot_tail_wing.png")).all()
        expected = pixels("1/000001/background_interventions/7.png")
        assert (birds.intervene(1, drop_background=[7, 7]) == expected).all()
        assert birds.n_background(1) == 10

    def test_target_set_and_present(self, tree):
        birds = module(tree, fold=None).dataset("projection")
        assert (birds.present(14), birds.target_set(14)) == (frozenset(), frozenset(range(8)))
        assert (birds.present(0), birds.target_set(0)) == (frozenset(PARTS), frozenset({0}))

    @pytest.mark.parametrize(("options", "message"), [
        ({"drop": ["horn"]}, r"`drop` to name parts present, \['beak', .*\], but got 'horn'"),
        ({"drop_background": [10]}, "indices below 10, the number of background objects, but got 10"),
        ({"drop_background": [-1]}, "indices below 10, the number of background objects, but got -1"),
        ({"drop_background": [0, 1]}, r"one background object removed, but .* drop_background=\[0, 1\]"),
        ({"drop": ["beak"], "drop_background": [0]}, r"but got drop=\['beak'\], drop_background=\[0\]"),
        ({"background": (0, 0, 0)}, r"background=\(0, 0, 0\)"),
    ])  # fmt: skip
    def test_unsupported(self, birds, options, message):
        with pytest.raises(ValueError, match=message):
            birds.intervene(1, **options)

    def test_removed_part_cannot_be_removed_again(self, tree):
        birds = module(tree, fold=None).dataset("projection")
        with pytest.raises(ValueError, match=r"`drop` to name parts present, \[\], but got 'beak'"):
            birds.intervene(14, drop=["beak"])

    def test_where_there_are_none(self, funnybirds_tree):
        root = funnybirds_tree()
        (root / "test_interventions").rename(root.parent / "elsewhere")
        birds = module(root).dataset("test")
        assert (birds.intervene(1) == birds.image(1)).all()
        with pytest.raises(ValueError, match=r"000001\.png to have interventions, but got: no test_interventions/"):
            birds.intervene(1, drop=["beak"])
        with pytest.raises(ValueError, match="interventions are rendered for test images only"):
            module(root).dataset("val").intervene(0, drop_background=[0])

    def test_without_part_maps(self, funnybirds_tree):
        root = funnybirds_tree()
        (root / "test_part_map").rename(root.parent / "elsewhere")
        with pytest.raises(ValueError, match="to have a part map, but got: no test_part_map/ under root"):
            module(root).dataset("test").label_map(0)

    def test_index_out_of_range(self, birds):
        for i in (-1, 4):
            with pytest.raises(IndexError, match=rf"`i` to be in \[0, 4\), but got {i}"):
                birds.image(i)
