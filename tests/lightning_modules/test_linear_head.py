"""A solved last layer: the penalty chosen, the weights a model may have, and the units that are left."""

from dataclasses import replace

import pytest
import torch

from protometry.lightning_modules import ProtoPNet, ProtoPool
from protometry.lightning_modules.heads import linear_head
from protometry.lightning_modules.heads.linear_head import _one_standard_error_choice
from protometry.lightning_modules.heads.sparse_head import HeadProblem, Terms, fit_sparse_head
from protometry.lightning_modules.phases import HeadSpec

K, U = 4, 8
LABELS = torch.arange(80) % K


def scores(seed=0):
    """Unit 2k and, half as much, unit 2k + 1 are high in images of class k; unit 5 is 0 everywhere."""
    generator = torch.Generator().manual_seed(seed)
    result = torch.rand(80, U, generator=generator)
    result[:, ::2] += 2 * torch.eye(K)[LABELS]
    result[:, 1::2] += torch.eye(K)[LABELS]
    result[:, 5] = 0
    return result


def protopnet(**options):
    return ProtoPNet(num_classes=K, image_size=(32, 32), prototypes_per_class=2, prototype_channels=4, **options)


def test_weights_are_the_solution_and_units_without_one_are_inactive():
    model = protopnet()
    model.prune(torch.arange(U) != 0)
    (row,) = model.fit_head((scores(), LABELS), None, HeadSpec(0.02))
    penalty_factor = torch.where(model.owner.T, 1.0, 5.0)[:, 1:]
    terms = Terms(penalty_factor, standardize=False, bias=False)
    expected = fit_sparse_head(HeadProblem(scores()[:, 1:], LABELS, K, 0.02, 1.0, terms), 2e-5).weight
    assert torch.equal(model.linear.weight[:, 1:], expected.float())
    used = torch.tensor([False, *(expected != 0).any(0).tolist()])
    assert torch.equal(model.units().active, used)
    assert not used[5]
    assert row["units"] == used.sum()
    assert row["weights_per_class"] == (expected != 0).sum() / K
    assert row["violation"] <= 2e-5
    assert row["chosen"]
    assert not any("validation" in name for name in row)


@pytest.mark.parametrize("spec", [HeadSpec(0.005), HeadSpec(0.005, others=float("inf"))])
def test_a_class_that_reads_its_own_reads_no_others(spec):
    model = protopnet(off_class_init=None if spec.others == 5 else 0.0)
    model.fit_head((scores(), LABELS), None, spec)
    assert not model.linear.weight[~model.owner.T].any()
    assert (model.linear.weight[model.owner.T].view(K, 2) > 0).any(dim=1).all()


def test_the_largest_penalty_within_a_standard_error_of_the_best():
    values = [(0.8, 0.03), (0.27, 0.02), (0.26, 0.02), (0.25, 0.015), (0.26, 0.02)]
    rows = [{"loss": value, "standard_error": error, "solved": 1.0, "empty_classes": 0} for value, error in values]
    assert _one_standard_error_choice(rows) == 2
    assert _one_standard_error_choice([*rows[:2], rows[2] | {"empty_classes": 1}, *rows[3:]]) == 3
    assert _one_standard_error_choice([*rows[:2], rows[2] | {"solved": 0.0}, *rows[3:]]) == 3
    assert _one_standard_error_choice([row | {"solved": 0.0} for row in rows]) == 2
    model = protopnet()
    path = model.fit_head((scores(), LABELS), (scores(1), LABELS), HeadSpec())
    (chosen,) = (row for row in path if row["chosen"])
    penalties = [row["penalty"] for row in path]
    assert penalties == [penalties[0] / 2**step for step in range(len(path))]
    assert chosen["violation"] <= 1e-3 * chosen["penalty"]
    assert chosen["validation_accuracy"] == (model.head(scores(1)).argmax(1) == LABELS).double().mean()
    above = fit_sparse_head(HeadProblem(scores(), LABELS, K, 2.001 * penalties[0], 1.0,
                                    Terms(torch.where(model.owner.T, 1.0, 5.0), False, False)))  # fmt: skip
    assert not above.weight.any()


def noisy(seed=2):
    """Scores that leave some images wrong, of classes in another order and of other sizes."""
    generator = torch.Generator().manual_seed(seed)
    labels = LABELS[torch.randperm(80, generator=generator)][:70]
    values = torch.rand(70, U, generator=generator)
    values[:, ::2] += 0.4 * torch.eye(K)[labels]
    return values, labels


def test_cross_validation_judges_each_image_under_a_head_that_has_not_seen_it(monkeypatch):
    monkeypatch.setattr(linear_head, "ROUGH", 1e-6)
    model, (values, labels) = protopnet(), noisy()
    path = model.fit_head((values, labels), None, HeadSpec("auto"))
    seen = [0] * K
    folds = []
    for label in labels.tolist():  # dealt to five folds, class by class
        folds.append(seen[label] % 5)
        seen[label] += 1
    folds = torch.tensor(folds)
    terms = Terms(torch.where(model.owner.T, 1.0, 5.0), standardize=False, bias=False)
    for row in path:
        logits = torch.zeros(70, K, dtype=torch.float64)
        for fold in range(5):
            problem = HeadProblem(values[folds != fold], labels[folds != fold], K, row["penalty"], 1.0, terms)
            weight = fit_sparse_head(problem, 1e-6 * row["penalty"]).weight
            logits[folds == fold] = values[folds == fold].double() @ weight.T
        assert row["cross_validation_accuracy"] == (logits.argmax(1) == labels).double().mean()
        losses = -(logits / row["temperature"]).log_softmax(1)[torch.arange(70), labels]
        assert row["cross_validation_loss"] == pytest.approx(losses.mean().item(), rel=1e-4)
        assert row["standard_error"] == pytest.approx(losses.std(correction=0).item() / 70**0.5, rel=1e-4)
    losses = [row["cross_validation_loss"] for row in path]
    best = path[losses.index(min(losses))]
    enough = [loss <= min(losses) + best["standard_error"] for loss in losses]
    assert [row["chosen"] for row in path] == [index == enough.index(True) for index in range(len(path))]
    assert 0 < min(losses) < max(losses)


def test_probabilities_are_those_of_images_that_the_head_has_not_seen(monkeypatch):
    monkeypatch.setattr(linear_head, "ROUGH", 1e-6)
    (values, labels), model = noisy(), protopnet()
    row = next(row for row in model.fit_head((values, labels), None, HeadSpec("auto")) if row["chosen"])
    terms = Terms(torch.where(model.owner.T, 1.0, 5.0), standardize=False, bias=False)
    folds = (labels[:, None] == labels).tril(-1).sum(1) % 5

    def solved(rows):
        problem = HeadProblem(values[rows], labels[rows], K, row["penalty"], 1.0, terms)
        return fit_sparse_head(problem, 1e-6 * row["penalty"]).weight

    weight = model.linear.weight.double() * row["temperature"]
    assert torch.allclose(weight, solved(slice(None)), rtol=1e-3, atol=1e-3)
    logits = torch.stack([solved(folds != folds[image]) @ values[image].double() for image in range(70)])
    truth = torch.full((70, K), 1 / 72 / (K - 1)).scatter(1, labels[:, None], 71 / 72)  # one image more is wrong
    tried = torch.logspace(-1, 1, 400, dtype=torch.float64)
    losses = torch.stack([-(truth * (logits / each).log_softmax(1)).sum(1).mean() for each in tried])
    assert row["temperature"] == pytest.approx(tried[losses.argmin()].item(), rel=0.02)
    assert row["temperature"] < 0.9  # the penalty had made probabilities too even


def test_few_images_soft_targets_and_several_labels_are_cross_validated():
    values, labels = noisy()
    soft = torch.full((70, K), 0.05).scatter(1, labels[:, None], 0.85)
    for rows in (slice(None), slice(0, 9)):  # a class of nine images has one or two
        path = protopnet().fit_head((values[rows], soft[rows]), None, HeadSpec("auto"))
        assert all(0 <= row["cross_validation_accuracy"] <= 1 for row in path)
    several = torch.eye(K, dtype=torch.bool)[labels]
    path = protopnet(task="multilabel").fit_head((values, several), None, HeadSpec("auto"))
    assert all(row["cross_validation_loss"] > 0 for row in path)


def test_a_limit_of_weights_leaves_the_best_of_few():
    training = noisy()
    free = protopnet().fit_head(training, None, HeadSpec("auto", others=1.0))
    chosen = next(row for row in free if row["chosen"])
    path = protopnet().fit_head(training, None, HeadSpec("auto", others=1.0, weights_per_class=1.2))
    few = next(row for row in path if row["chosen"])
    assert few["weights_per_class"] <= 1.2 < chosen["weights_per_class"]
    assert HeadSpec(None).is_chosen  # in files and checkpoints from before there was a default
    with pytest.raises(ValueError, match=r"only where the penalty is chosen, .* is 0.1. Set it to auto"):
        HeadSpec(0.1, weights_per_class=3)
    with pytest.raises(ValueError, match=r"penalty` to be above 0 and finite, or auto, but got 'best'"):
        HeadSpec("best")


def test_the_path_ends_after_three_penalties_without_improvement():
    path = protopnet().fit_head((scores(), LABELS), (scores(1), LABELS), HeadSpec())
    losses = [row["validation_loss"] for row in path]
    assert len(path) - 1 - losses.index(min(losses)) == linear_head.PATIENCE < linear_head.HALVINGS - 1


def test_classes_without_any_weight_are_reported():
    model = protopnet()
    with pytest.warns(UserWarning, match=r"A penalty of 1.0e\+00 leaves 4 of 4 classes without any weight. Lower"):
        model.fit_head((scores(), LABELS), None, HeadSpec(1.0))
    assert not model.units().active.any()


@pytest.mark.parametrize("spec", [HeadSpec(), HeadSpec(0.02)])
def test_scores_that_no_head_can_be_solved_on_are_refused(spec):
    model, broken = protopnet(), scores()
    before, broken[3, 1] = model.linear.weight.clone(), torch.nan
    alike = torch.full_like(broken, 3.3) * (1 + 1e-7 * torch.rand(80, U))  # but for the rounding of float32
    for training, validation, reason in [
        (broken, scores(1), r"finite scores, but got NaN or infinity for 1 of 80 images"),
        (scores(), broken, r"finite scores, but got NaN or infinity for 1 of 80 images"),
        (alike, scores(1), r"some active unit to vary over the training images, but got the same scores for all 80"),
    ]:
        with pytest.raises(ValueError, match=reason):
            model.fit_head((training, LABELS), (validation, LABELS), spec)
    assert torch.equal(model.linear.weight, before)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_solution_is_as_precise_as_promised_for_large_scores(scale):
    """Weights of large scores are below the tolerance of the solver, which may leave them wherever they are."""
    path = protopnet().fit_head((scale * scores(), LABELS), (scale * scores(1), LABELS), HeadSpec())
    for row in path:
        assert row["violation"] <= (1e-3 if row["chosen"] else 0.05) * row["penalty"]
        assert row["solved"] == 1


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ([0], r"not solved for 1 of \d penalties, which were not chosen: 1.9e-01"),
        (range(99), r"by 1.0e\+00 after \d+ passes, more than 0.001 of its penalty of 1.9e-01. Raise"),
    ],
)
def test_a_penalty_that_is_not_solved_is_marked_and_not_chosen_without_a_warning(broken, message, monkeypatch):
    """The first of the path, which would have been chosen, or all."""
    done = []

    def solve(problem, *args, **options):
        head = fit_sparse_head(problem, *args, **options)
        done.append(problem.l1)
        return replace(head, violation=1.0) if len(set(done)) - 1 in broken else head

    monkeypatch.setattr(linear_head, "fit_sparse_head", solve)
    with pytest.warns(UserWarning, match=message):
        path = protopnet().fit_head((scores(), LABELS), (scores(1), LABELS), HeadSpec())
    assert [row["solved"] for row in path] == [float(index not in broken) for index in range(len(path))]
    assert [row["chosen"] for row in path].index(True) == (1 if len(broken) == 1 else 0)


def test_class_weights_count_images_several_times():
    twice = protopnet(class_weights=True)
    twice.class_weights.copy_(torch.tensor([2.0, 1.0, 1.0, 1.0]))
    repeated = torch.cat([torch.arange(80), (LABELS == 0).nonzero()[:, 0]])
    twice.fit_head((scores(), LABELS), None, HeadSpec(0.02 * 100 / 80))
    model = protopnet()
    model.fit_head((scores()[repeated], LABELS[repeated]), None, HeadSpec(0.02))
    torch.testing.assert_close(twice.linear.weight, model.linear.weight, rtol=0, atol=1e-3)


def test_shared_prototypes_have_the_weight_of_one_slot():
    options = {"num_classes": K, "image_size": (32, 32), "num_prototypes": U, "slots_per_class": 2}
    model = ProtoPool(**options, prototype_channels=4, task="multilabel")
    logits = torch.zeros(K, U, 2)
    logits[torch.arange(K), 2 * torch.arange(K), 0] = 1
    logits[torch.arange(K), (2 * torch.arange(K) + 2) % U, 1] = 1  # each of units 0, 2, 4, 6 has two slots
    model.slots.logits.data = logits
    model.prototypes.active.copy_(torch.arange(U) % 2 == 0)
    images = scores() * model.prototypes.active
    several = torch.eye(K)[LABELS].bool() | (torch.rand(80, K) > 0.9)
    path = model.fit_head((images, several), (images, several), HeadSpec())
    assert (row := next(row for row in path if row["chosen"]))["validation_loss"] > 0
    weight = model.units().weight
    torch.testing.assert_close(model.head(images), images @ weight.T)
    assert row["weights_per_class"] == (weight != 0).sum() / K
    assert model.units().active.tolist() == (weight != 0).any(0).tolist()
    spec = replace(HeadSpec(), nonnegative=True)
    assert model.fit_head((images, several), (images, several), spec)
    assert (model.units().weight >= 0).all()


def test_calibration_finds_the_temperature_that_labels_were_drawn_at():
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(20_000, U, generator=generator)
    model = protopnet(off_class_init=None)
    before = model.linear.weight.clone()
    labels = torch.multinomial((model.head(values) / 0.4).softmax(1), 1, generator=generator)[:, 0]
    assert model.calibrate((values, labels)) == pytest.approx(0.4, rel=0.05)
    torch.testing.assert_close(model.linear.weight, before / 0.4, rtol=0.05, atol=0)
    assert model.calibrate((values, labels)) == pytest.approx(1, rel=1e-3)
