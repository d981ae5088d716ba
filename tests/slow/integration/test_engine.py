"""The engine end to end: no change without a perturbation, and nothing but the images decides the numbers."""

import pytest
import torch

from protometry.callbacks import Interpretability
from protometry.metrics.suite import FAMILIES
from tests.engine_runs import run_engine
from tests.explanations.registry import EXPLAINERS
from tests.integration.test_engine import (
    EIGHT,
    PLAIN,
    SOME,
    assert_equal,
    assert_measured,
    assert_nothing_changes_without_a_perturbation,
    built,
    evaluated,
)
from tests.lightning_modules.registry import MODELS, NETWORKS, tiny_birds

ORDER = torch.randperm(10, generator=torch.Generator().manual_seed(1)).tolist()


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "ProtoPNet"])
def test_without_a_perturbation_nothing_changes(name):
    """With a third of the explainers of a model, others for its neighbour."""
    supported = [explainer for explainer in PLAIN if EXPLAINERS[explainer]().supports(built(name)) is None]
    for explainer in supported[list(NETWORKS).index(name) % 3 :: 3]:
        assert_nothing_changes_without_a_perturbation(name, explainer)


@pytest.mark.parametrize("explainer", [name for name in EXPLAINERS if name not in PLAIN])
def test_without_a_perturbation_options_of_explainers_change_nothing(explainer):
    assert_nothing_changes_without_a_perturbation("ProtoPNet", explainer)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in SOME])
def test_the_perturbation_changes_something_and_what_is_shown_of_a_decision_is_measured(name):
    assert_measured(name)


def test_batches_and_order_move_nothing(reference):
    assert_equal(evaluated(batch_size=7, order=ORDER), reference)


def test_images_alone_from_workers_are_the_images_of_a_batch(reference):
    assert_equal(evaluated(batch_size=1, workers=2), reference)


def evaluated_in_a_process(rank, world_size, batch_size, test_size):
    torch.set_num_threads(1)
    model, data = built("ProtoPNet"), tiny_birds(test_size=test_size)
    engine = Interpretability(["all"], memory_budget=EIGHT)
    return run_engine(engine, model, data, batch_size, rank=rank, world_size=world_size)


def test_two_processes_agree_with_one(ddp_pool, reference):
    for evaluation in ddp_pool.run(evaluated_in_a_process, 3, 10):
        assert_equal(evaluation, reference)


def test_the_attack_is_of_some_images():
    """Drawn by class; in batches of one, some are attacked and some are not."""
    keys = (*FAMILIES["alignment"].keys, "sanity/deletion")
    others = ["general/accuracy", *(key for key in keys[:-1] if "misalignment" not in key)]
    drawn, data, few = Interpretability(["general/accuracy", *keys], attacked=3), tiny_birds(), tiny_birds()
    some = run_engine(drawn, built("ProtoPNet"), data, batch_size=1)
    few.configure_loaders(limit=3)
    alone = run_engine(Interpretability(keys), built("ProtoPNet"), few)
    whole = run_engine(Interpretability(others), built("ProtoPNet"), tiny_birds())
    assert some.protocol["attacked"] == 3
    assert "attacked" not in alone.protocol | whole.protocol
    assert some.metrics.keys() == alone.metrics.keys() | whole.metrics.keys()
    for key in some.metrics:
        expected = whole if key in others else alone
        assert str(some.metrics[key]) == str(expected.metrics[key]), key
    assert all("sanity/deletion" not in row for row in some.images.values())
    assert all("sanity/deletion" in row for row in alone.images.values())
