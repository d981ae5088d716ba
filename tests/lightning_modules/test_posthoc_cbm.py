"""Post-hoc concept bottleneck: projections, the fit on planted concepts, editing, the residual, bad input."""

import pytest
import torch

from protometry.callbacks import Interpretability
from protometry.datamodules.sample import Capabilities, ClassTables
from protometry.lightning_modules import PosthocCBM
from protometry.lightning_modules.bases.training_inputs import refuse_unfit_concepts
from tests.engine_runs import run_engine
from tests.lightning_modules.registry import tiny_birds

K, L = 4, 6


def make(**options):
    torch.manual_seed(0)
    return PosthocCBM(**({"num_classes": K, "num_concepts": L, "image_size": (32, 32)} | options)).eval()


def planted(images=500, noise=0.3):
    """Concept l is channel l of the embedding; no image has concept 4, all have concept 5; 0 and 1 tell the class."""
    generator = torch.Generator().manual_seed(1)
    concepts = torch.rand(images, L, generator=generator) < 0.5
    concepts[:, 4], concepts[:, 5] = False, True
    embeddings = 0.1 * torch.randn(images, 128, generator=generator).abs()
    embeddings[:, :L] += concepts + noise * torch.randn(images, L, generator=generator)
    return embeddings, concepts, 2 * concepts[:, 0] + concepts[:, 1]


@pytest.fixture
def fitted():
    model = make(preset="hybrid")
    report = model.fit_concepts(*planted(), seed=0)
    return model, report


def test_a_planted_bank_is_found(fitted):
    model, report = fitted
    for concept in range(4):
        assert model.vectors[concept].abs().argmax() == concept
    assert model.units().active.tolist() == [True] * 4 + [False] * 2
    assert model.units().concepts.tolist() == list(range(L))
    assert (report["concepts"], report["left_out"], report["fewer_examples"]) == (4, 2, 0)
    assert report["validation_accuracy"] > 0.93
    assert report["head_accuracy"] > 0.88
    assert report["violation"] < 1e-4
    embeddings, _, labels = planted()
    scores = embeddings @ model.vectors.T  # raw projection
    assert ((model.head(scores).argmax(1) == labels).float().mean()).item() == pytest.approx(report["head_accuracy"])
    assert not model.linear.weight[:, 4:].any()
    bank = model.concept_bank()
    assert bank["train_positives"].tolist() == [100, 100, 100, 100, 0, 100]
    assert bank["validation_negatives"].tolist() == [100, 100, 100, 100, 100, 0]


@pytest.mark.parametrize("projection", ["raw", "unit", "margin"])
def test_projections_by_their_definition(projection):
    model = make(projection=projection)
    model.fit_concepts(*planted(), seed=0)
    output = model(torch.rand(2, 3, 32, 32))
    pooled = output.latent.mean((2, 3))
    for image in range(2):
        for concept in range(L):
            v, b = model.vectors[concept], model.intercepts[concept]
            expected = v @ pooled[image]
            if projection != "raw" and concept < 4:
                expected = (expected + (b if projection == "margin" else 0)) / v.norm()
            assert output.scores[image, concept].item() == pytest.approx(expected.item(), abs=1e-5)
    assert torch.equal(output.maps.mean((2, 3)), output.scores)
    assert (output.scores[:, 4:] == 0).all()


def test_the_residual_is_what_no_concept_explains(fitted):
    model, _ = fitted
    pictures, classes = torch.rand(3, 3, 32, 32), torch.tensor([0, 3, 1])
    plain = model(pictures)
    assert not plain.extras["residual"].any(), "an untrained residual decides nothing"
    torch.nn.init.normal_(model.residual.weight)
    output = model(pictures)
    rows = torch.arange(3)
    shares = model.contributions(output, classes).sum(1)
    rest = output.logits[rows, classes] - model.linear.bias[classes] - output.extras["residual"][rows, classes]
    torch.testing.assert_close(shares, rest)
    assert torch.equal(output.scores, plain.scores)


def test_an_evaluation_tells_the_share_of_the_residual_and_what_is_left_out():
    data = tiny_birds(test_size=10)
    model = make(preset="hybrid", num_concepts=20, num_classes=8)
    torch.nn.init.normal_(model.residual.weight)
    model.vectors[3] = 0.0
    actual = run_engine(Interpretability(["concepts/residual_share"]), model, data)
    output = model(torch.stack([data.dataset("test")[row]["image"] for row in range(10)]))
    best = output.logits.argmax(1, keepdim=True)
    inside = model.contributions(output, best[:, 0]).sum(1).abs()
    outside = output.extras["residual"].gather(1, best)[:, 0].abs()
    expected = (outside / (inside + outside)).mean().item()
    assert actual.metrics["concepts/residual_share"]["value"] == pytest.approx(expected, abs=1e-4)
    assert actual.protocol["concepts_left_out"] == [data.tables.concept_names[3]]


def test_editing(fitted):
    model, _ = fitted
    before = model.linear.weight.detach().clone()
    removed = torch.zeros(K, L, dtype=torch.bool)
    removed[0, 0] = removed[2, 2] = True
    model.edit(removed)
    assert torch.equal(model.linear.weight, before.masked_fill(removed, 0))
    removed[1, 1] = True
    size = model.linear.weight.abs().sum(1)
    model.edit(removed, renormalize=True)
    torch.testing.assert_close(model.linear.weight.abs().sum(1), size)
    assert not model.linear.weight[removed].any()
    assert torch.equal(model.linear.weight[3], before[3])
    with pytest.raises(ValueError, match=r"the classes \[3\] have none left"):
        model.edit(torch.arange(K)[:, None].expand(K, L) == 3, renormalize=True)
    with pytest.raises(ValueError, match=r"`removed` to have the shape \(4, 6\), but got \(6, 4\)"):
        model.edit(removed.T)


@pytest.mark.parametrize(("options", "message"), [
    ({"num_concepts": 0}, "`num_concepts` to be at least 2, but got 0. PosthocCBM needs data with annotated concepts"),
    ({"projection": "cosine"}, r"`projection` to be one of \('raw', 'unit', 'margin'\), but got 'cosine'"),
    ({"head": "softmax_l2"}, "`head` to be .*softmax_elastic_net.*`l1_ratio: 0`"),
    ({"svm_c": 0.0}, "`svm_c` to be above 0, but got 0.0"),
    ({"positives": 0}, "`positives` to be above 0, but got 0"),
    ({"l1_ratio": -0.1}, "`l1_ratio` to be at least 0 and at most 1, but got -0.1"),
    ({"task": "multilabel"}, "`task` of PosthocCBM to be one of .*, but got 'multilabel'"),
])  # fmt: skip
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_too_few_concepts_are_refused_and_nothing_is_changed():
    embeddings, concepts, labels = planted()
    concepts[:, 1:] = False
    model = make()
    before = model.vectors.clone()
    with pytest.raises(ValueError, match=r"at least 2 concepts that some training images show and .*, but got 1 of 6"):
        model.fit_concepts(embeddings, concepts, labels, seed=0)
    assert torch.equal(model.vectors, before)


class Data:
    def __init__(self, flags, names, table):
        self.flags, self.tables = flags, ClassTables(concept_names=names, class_concepts_binary=table)

    def capabilities(self, split):
        return self.flags


@pytest.mark.parametrize(("data", "message"), [
    (Data(Capabilities(), [], None), r"annotated concepts, but .* Data have none \(no class concepts; no image"),
    (Data(Capabilities(concepts_class=True), list("abcdef"), torch.ones(3, 6) > 0), r"classes by concepts is \(3, 6\)"),
    (Data(Capabilities(concepts_image=True), list("abcde"), None), "it names 5 concepts"),
])  # fmt: skip
def test_data_that_do_not_fit_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        refuse_unfit_concepts(data, K, L)
    refuse_unfit_concepts(Data(Capabilities(concepts_class=True), list("abcdef"), torch.ones(K, L) > 0), K, L)
