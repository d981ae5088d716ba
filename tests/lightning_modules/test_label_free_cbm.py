"""Label-free bottleneck: cubed cosines, filters of words, a planted layer, texts as directions, bad input."""

import csv
import math

import numpy as np
import pytest
import torch

from examples.planted_words import plant
from protometry.callbacks import Interpretability
from protometry.callbacks.phases.words import WordEmbeddings, unfit_words
from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.lightning_modules import LabelFreeCBM, load_model
from protometry.lightning_modules.contract import Words
from protometry.lightning_modules.heads.concept_layer import cubed_cosine, fit_concept_layer
from tests.engine_runs import run_engine
from tests.lightning_modules.bases.test_load import saved
from tests.lightning_modules.registry import tiny_birds, tiny_trainer

NAMES = ["red", "green", "blue", "flat", "absent", "noise"]


def make(words=NAMES, embeddings="none.npz", **options):
    torch.manual_seed(0)
    defaults = {"num_classes": 4, "image_size": (32, 32), "shown_cutoff": 0.3}
    return LabelFreeCBM(embeddings, words=words, **(defaults | options)).eval()


def planted(images=400):
    """Words 0 to 2 are channels 0 to 2 and tell the class; 3 is the same everywhere, 4 weak, 5 not in the embedding."""
    generator = torch.Generator().manual_seed(1)
    truth = torch.rand(images, 3, generator=generator) < 0.3
    embeddings = 0.1 * torch.randn(images, 128, generator=generator)
    embeddings[:, :3] += truth
    strengths = torch.full((images, 6), 0.4)
    strengths[:, :3] = 0.2 + 0.2 * truth + 0.01 * torch.randn(images, 3, generator=generator)
    strengths[:, 4] = 0.1 * torch.rand(images, generator=generator)
    strengths[:, 5] = torch.rand(images, generator=generator)
    return embeddings, strengths, 2 * truth[:, 0] + truth[:, 1]


def by_formula(first, second):
    """Oikarinen et al. 2023, step 2, one number at a time."""
    n = len(first)
    p, q = ([x - sum(signal) / n for x in signal] for signal in (first.tolist(), second.tolist()))
    top = sum(a**3 * b**3 for a, b in zip(p, q, strict=True))
    return top / math.sqrt(sum(a**6 for a in p) * sum(b**6 for b in q))


@pytest.mark.parametrize("seed", range(3))
def test_cubed_cosines_by_their_formula(seed):
    generator = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(7 + seed, 4, generator=generator) for _ in range(2))
    expected = [by_formula(*pair) for pair in zip(first.T, second.T, strict=True)]
    torch.testing.assert_close(cubed_cosine(first, second), torch.tensor(expected))
    torch.testing.assert_close(cubed_cosine(3 * first - 1, second), torch.tensor(expected), msg="scale and shift")


def test_strong_images_decide():
    """Of 9 images one is strong for the word. A signal that is right there and wrong elsewhere beats the opposite."""
    word = torch.tensor([1.0, *[0.0, 0.1] * 4])[:, None]
    right_there = torch.tensor([1.0, *[0.1, 0.0] * 4])[:, None]
    right_elsewhere = torch.tensor([0.05, *[0.0, 0.1] * 4])[:, None]
    assert cubed_cosine(word, right_there) > 0.99
    assert cubed_cosine(word, right_elsewhere) < 0.1


def test_the_layer_stops_where_held_out_images_do():
    """With noise to learn by heart, the layer is the one before they become worse, and the same in every run."""
    embeddings, strengths, _ = planted(60)
    layers = [fit_concept_layer(embeddings, strengths[:, [0, 5]], seed=3) for _ in range(2)]
    assert torch.equal(layers[0].weight, layers[1].weight)
    assert 1 <= layers[0].step < 1000
    assert layers[0].step % 50 == 1
    generator = torch.Generator().manual_seed(3)
    held_out = torch.randperm(60, generator=generator)[:12]
    scores = embeddings[held_out] @ layers[0].weight.T
    torch.testing.assert_close(cubed_cosine(strengths[held_out][:, [0, 5]], scores), layers[0].similarities)


def test_a_planted_layer_is_found():
    model, (embeddings, strengths, labels) = make(), planted()
    report = model.fit_concepts(embeddings, strengths, labels, seed=0)
    bank = model.concept_bank()
    assert bank["left_out"] == ["", "", "", "no image shows it", "no image shows it", "not interpretable"]
    assert bank["shown"] == pytest.approx(strengths.topk(5, dim=0).values.mean(0).tolist())
    assert model.units().active.tolist() == bank["fitted"] == [True] * 3 + [False] * 3
    assert model.vectors[:3].abs().argmax(1).tolist() == [0, 1, 2]
    scores = embeddings @ model.vectors.T + model.intercepts
    torch.testing.assert_close(scores[:, :3].mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(scores[:, :3].std(0), torch.ones(3), atol=1e-5, rtol=0)
    assert not scores[:, 3:].any()
    assert (report["concepts"], report["left_out"]) == (3, 3)
    assert report["similarity"] == pytest.approx(sum(bank["similarity"][:3]) / 3)
    assert report["similarity"] > 0.8
    assert report["head_accuracy"] > 0.97
    again = model.fit_concepts(embeddings, strengths, labels, seed=0)
    assert again == report, "words that images left out are tried again"


def test_words_that_nothing_shows_are_refused_and_nothing_is_changed():
    model, (embeddings, strengths, labels) = make(), planted()
    before = model.vectors.clone()
    strengths[:, 2] = 0.0
    assert make().fit_concepts(embeddings, strengths, labels, seed=0)["concepts"] == 2  # enough
    strengths[:, 1] = 0.0
    with pytest.raises(
        ValueError, match=r"at least 2 words .* but 1 of 6 are left \(4 no image shows it, 1 not interp"
    ):
        model.fit_concepts(embeddings, strengths, labels, seed=0)
    assert torch.equal(model.vectors, before)
    assert not model.left_out.any()


# -- words -------------------------------------------------------------------------------------------------------------
def unit(*values):
    return (np.array(values) / np.linalg.norm(values)).tolist()


def test_words_that_are_unfit_by_name(tmp_path):
    """ "beak", "bill" and "small bill" are alike (cosines 0.95, 0.995 and 0.97); "bill" is like the others most."""
    texts = {
        "a very long description of a beak": [1.0, 0, 0, 0],
        "A Crow": [0, 1.0, 0, 0],
        "raven": unit(0, 1.0, 0.1, 0),
        "beak": [0, 0, 1.0, 0],
        "bill": unit(0, 0, 1.0, 0.2),
        "small bill": unit(0, 0, 1.0, 0.3),
        "legs": [1.0, 0, 0, 0],
    }
    np.savez(
        tmp_path / "w.npz", concepts=[*texts], text=[*texts.values()], classes=["crow"], class_text=[[0, 1.0, 0, 0]]
    )
    file = WordEmbeddings(str(tmp_path / "w.npz"))
    reasons = unfit_words(Words([*texts], "w.npz"), ["crow"], file)
    another = "like another word"
    assert reasons == ["too long", "a class", "like a class", another, "", another, ""]
    assert unfit_words(Words(["bill", "beak"], "w.npz", like_another=0.99), ["crow"], file) == ["", ""]


def test_from_the_file_to_the_report(tmp_path):
    """Words of the data stand for its concepts, whatever their order; others have no truth, and their own names."""
    data = tiny_birds(train_size=64, test_size=10)
    words = ["headlights", *reversed(data.tables.concept_names[1:])]  # as many words as concepts
    plant(tmp_path / "words.npz", words, data)
    model = make(words, str(tmp_path / "words.npz"), num_classes=8, shown_cutoff=0.15, interpretability_cutoff=-1.0)
    tiny_trainer(default_root_dir=tmp_path).fit(model, datamodule=data)
    assert model.linked.tolist() == [-1, *reversed(range(1, 20))]
    with (tmp_path / "concepts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["concept"] for row in rows] == words
    assert rows[0]["left_out"] == "no image shows it"
    stored = saved(model, tmp_path / "x.ckpt")
    (tmp_path / "words.npz").unlink()
    again = load_model(stored)
    assert again.units().names == tuple(words)
    explained = ExplainedModel(again, data)
    assert [explained.unit_name(unit) for unit in range(20)] == words
    result = run_engine(Interpretability(["concepts/auc", "concepts/cgim1_concept", "concepts/cem@1"]), again, data)
    assert result.protocol["concepts_left_out"][0] == "headlights"
    assert "concepts/auc" in result.metrics
    assert "concepts/cgim1_concept" in result.items["units"], "a column is a unit, not the concept of its number"


def test_words_without_truth_say_so(tmp_path):
    data = tiny_birds(test_size=10)
    model = make(["a", "b"], num_classes=8)
    result = run_engine(Interpretability(["general/accuracy", "concepts/auc", "concepts/cem@1"]), model, data)
    assert {*result.skipped} == {"concepts/auc", "concepts/cem@1"}
    assert "stand for no concepts" in str(result.skipped)


def test_texts_as_directions():
    model = make(["x", "y"], directions="text")
    vectors = torch.eye(2, 128)
    model.load_words(["", ""], [-1, -1], vectors)
    embeddings, _, labels = planted()
    model.fit_concepts(embeddings, torch.empty(400, 0), labels, seed=0)
    output = model(torch.rand(2, 3, 32, 32))
    torch.testing.assert_close(output.scores, output.latent.mean((2, 3))[:, :2])
    with pytest.raises(ValueError, match=r"of 128 numbers, as many as the backbone has channels, but none\.npz has 5"):
        model.load_words(["", ""], [-1, -1], torch.rand(2, 5))


# -- bad input ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("options", "message"), [
    ({"words": ["beak"]}, "`words` to hold at least 2 concepts, each once, but got 1"),
    ({"words": ["beak", "leg", " beak"]}, "each once, but got 'beak' twice"),
    ({"directions": "image"}, r"`directions` to be one of \('learnt', 'text'\), but got 'image'"),
    ({"shown_cutoff": 25.0}, "`shown_cutoff` to be a cosine, from -1 to 1, but got 25.0"),
    ({"penalty": 0.0}, "`penalty` to be above 0"),
])  # fmt: skip
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_words_of_a_file(tmp_path):
    (tmp_path / "words.txt").write_text("a beak\n\n long legs \n")
    model = make(None, concepts=str(tmp_path / "words.txt"))
    assert model.hparams["words"] == ["a beak", "long legs"]
    with pytest.raises(ValueError, match="the words of the checkpoint, but they have changed"):
        model.on_load_checkpoint({"hyper_parameters": {"words": ["a beak"]}})
    for path, said in ((None, "None"), (str(tmp_path / "others.txt"), "others.txt")):
        with pytest.raises(FileNotFoundError, match=f"a concept on every line, but there is no .*{said}"):
            make(None, concepts=path)


@pytest.mark.parametrize(("change", "message"), [
    ({"sample_ids": ["train/00000"] * 24}, "`sample_ids` of .* to hold all 24 that are needed, but 23 are missing"),
    ({"concepts": ["beak", "leg"]}, "`concepts` of .* but 1 are missing, such as 'legs'.* Did you mean"),
    ({"text": np.full((2, 4), np.nan)}, r"`text` of .* to hold finite floats, one row for each of `concepts` \(2,\)"),
    ({"images": np.zeros((3, 4))}, r"`images` of .* `sample_ids` \(24,\), but got float64 \(3, 4\)"),
    ({"images": None}, "to hold `images`, but it has concepts, sample_ids, text"),
    ({"concepts": np.array([{}, {}])}, "written by `numpy.savez` without objects"),
    (None, "a file of embeddings, but there is no"),
])  # fmt: skip
def test_files_that_do_not_fit_are_refused_before_training(tmp_path, change, message):
    data, path = tiny_birds(), tmp_path / "w.npz"
    arrays = {"concepts": ["beak", "legs"], "text": np.eye(2, 4), "images": np.ones((24, 4)),
              "sample_ids": data.dataset("projection").sample_ids}  # fmt: skip
    if change is not None:
        np.savez(path, **{name: value for name, value in (arrays | change).items() if value is not None})
    error = FileNotFoundError if change is None else ValueError
    with pytest.raises(error, match=message):
        tiny_trainer(default_root_dir=tmp_path).fit(make(["beak", "legs"], str(path), num_classes=8), datamodule=data)
