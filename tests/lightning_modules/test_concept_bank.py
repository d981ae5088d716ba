"""The bank of concept vectors: which images teach a concept, and that each vector is scikit-learn's."""

import pytest
import torch
from sklearn.svm import SVC

from protometry.lightning_modules.heads.concept_bank import Examples, draw_examples, fit_concept_bank

ASKED = Examples(positives=15, negatives=20, svm_c=0.1, seed=3)


@pytest.fixture
def images():
    """100 embeddings with 6 concepts: two plain, one of 17 images, one of none, one of all, one of a single image."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(100, 8, generator=generator)
    concepts = embeddings[:, :6] + 0.5 * torch.randn(100, 6, generator=generator) > 0
    rows = torch.arange(100)
    concepts[:, 2], concepts[:, 3], concepts[:, 4], concepts[:, 5] = rows < 17, False, True, rows == 40
    return embeddings, concepts


def test_every_vector_is_that_of_scikit_learn(images):
    embeddings, concepts = images
    bank = fit_concept_bank(embeddings, concepts, ASKED)
    for concept in (0, 1, 2, 5):
        (without, with_it), validation = draw_examples(concepts[:, concept], ASKED, concept)
        rows = torch.cat([without, with_it])
        machine = SVC(kernel="linear", C=0.1).fit(embeddings[rows].numpy(), concepts[rows, concept].numpy())
        torch.testing.assert_close(bank.vectors[concept], torch.tensor(machine.coef_[0], dtype=torch.float32))
        assert bank.intercepts[concept].item() == pytest.approx(machine.intercept_[0], abs=1e-6)
        norm = torch.tensor(machine.coef_[0]).norm()
        for side, part in enumerate((without, with_it)):
            distances = torch.tensor(machine.decision_function(embeddings[part].numpy())) / norm
            assert bank.margins[concept, side].item() == pytest.approx(distances.mean().item(), abs=1e-5)
        for row, (absent, present) in enumerate(((without, with_it), validation)):
            if len(present):
                hits = [(machine.predict(embeddings[part].numpy()) == kind).mean()
                        for part, kind in ((absent, False), (present, True))]  # fmt: skip
                assert bank.accuracies[concept, row].item() == pytest.approx(sum(hits) / 2)


def test_what_is_available_is_used_first_to_learn_from(images):
    embeddings, concepts = images
    bank = fit_concept_bank(embeddings, concepts, ASKED)
    # 17 images with concept 2: 15 to learn from and 2 to validate; a single one with concept 5 leaves none to validate
    assert bank.examples[2].tolist() == [[20, 15], [20, 2]]
    assert bank.examples[5].tolist() == [[20, 1], [20, 0]]
    assert bank.examples[3:5].tolist() == [[[20, 0], [20, 0]], [[0, 15], [0, 15]]]
    assert bank.found.tolist() == [True, True, True, False, False, True]
    assert not bank.vectors[3:5].any()
    assert bank.accuracies[3:5].isnan().all()
    assert bank.accuracies[5].isnan().tolist() == [False, True]


def test_examples_are_drawn_once_and_neither_order_of_work_nor_other_concepts_matter(images, monkeypatch):
    embeddings, concepts = images
    for split in draw_examples(concepts[:, 0], ASKED, 0):
        for rows, kind in zip(split, (False, True), strict=True):
            assert len(rows.unique()) == len(rows)
            assert (concepts[rows, 0] == kind).all()
    train, validation = (torch.cat(split).tolist() for split in draw_examples(concepts[:, 0], ASKED, 0))
    assert not set(train) & set(validation)
    bank = fit_concept_bank(embeddings, concepts, ASKED)
    concepts[:, 1:] = ~concepts[:, 1:]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    again = fit_concept_bank(embeddings, concepts, ASKED)
    assert torch.equal(again.vectors[0], bank.vectors[0])
    other = fit_concept_bank(embeddings, concepts, Examples(15, 20, 0.1, seed=4))
    assert not torch.equal(other.vectors[0], bank.vectors[0])


def test_embeddings_that_are_all_the_same_have_no_direction(images):
    _, concepts = images
    bank = fit_concept_bank(torch.ones(100, 8), concepts, ASKED)
    assert not bank.found.any()
    assert bank.accuracies.isnan().all()
