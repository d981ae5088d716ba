"""Four processes: what they find is what one finds, and what they tell each other does not grow with the images."""

import pytest
import torch
from torch import distributed

from protometry.callbacks import Interpretability
from protometry.callbacks.phases.projection import nearest_patches
from protometry.datamodules.dataset import ExactSampler, ImageLoader
from protometry.evaluation.evaluate import evaluate
from protometry.evaluation.hardware import Hardware
from protometry.evaluation.request import Request
from protometry.evaluation.trained_model import TrainedModel
from tests.ddp_pool import DdpPool
from tests.lightning_modules.registry import TINY_PROTOPNET, tiny_birds
from tests.tiny_runs import as_launched, fit

pytestmark = pytest.mark.ddp


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    pool = DdpPool(tmp_path_factory.mktemp("four"), world_size=4)
    yield pool
    pool.close()


def count_bytes(patch):
    """The bytes of every tensor that this process hands to a collective from now on."""
    sent = []
    for name, place in (("all_reduce", 0), ("all_gather", 1)):
        collective = getattr(distributed, name)

        def counted(*args, collective=collective, place=place, **options):
            sent.append(args[place].numel() * args[place].element_size())
            return collective(*args, **options)

        patch.setattr(distributed, name, counted)
    return sent


def patches_on(rank, world_size, images):
    """The nearest patches of 16 prototypes with 8 channels, and the bytes sent for them."""
    torch.manual_seed(0)
    model, dataset = TINY_PROTOPNET(num_classes=8, image_size=(32, 32)).eval(), tiny_birds(train_size=images)
    dataset = dataset.dataset("projection")
    loader = ImageLoader(dataset, batch_size=3, sampler=ExactSampler(dataset, rank, world_size))
    with pytest.MonkeyPatch.context() as patch:
        sent = count_bytes(patch)
        nearest = nearest_patches(model, loader, model.device)
    return [tensor.tolist() for tensor in vars(nearest).values()], sum(sent)


@pytest.mark.parametrize("images", [25, 50])
def test_projection_is_that_of_one_process(four, images):
    expected, _ = patches_on(0, 1, images)
    for actual, sent in four.run(patches_on, images):
        assert actual == expected
        assert sent == 16 * (4 + 8 + 8 + 8 + 1 + 4 * 8)  # distance, key, cell, label, own and patch of every unit


def evaluate_on(rank, world_size, path):
    with as_launched(rank, world_size), pytest.MonkeyPatch.context() as patch:
        sent = count_bytes(patch)
        request = Request(TrainedModel(path, allow_classes=["tests"]), Interpretability(), overwrite=True)
        result, _ = evaluate(request, Hardware("cpu", world_size))
    return result["metrics"], sum(sent)


def test_an_evaluation_is_that_of_one_process(four, tmp_path):
    """Of 33 images, on processes with 9, 8, 8 and 8 of them."""
    fit(tmp_path / "run", "--trainer.max_epochs=1", "--trainer.limit_val_batches=0")
    path = tmp_path / "run" / "checkpoints" / "last.ckpt"
    expected, _ = evaluate_on(0, 1, path)
    answers = four.run(evaluate_on, path)
    for metrics, _ in answers:
        assert metrics.keys() == expected.keys()
        for key, entry in metrics.items():
            assert entry["n"] == expected[key]["n"]
            values = [expected[key]["value"], *expected[key]["ci95"]]
            assert [entry["value"], *entry["ci95"]] == pytest.approx(values, abs=1e-6, nan_ok=True)
    (sent,) = {sent for _, sent in answers}
    assert sent < 30_000  # 16 units, 8 classes; only the entropy's scores grow, by 4 * 16 bytes an image
