"""Training and evaluation on a CUDA device, compared with the CPU: ``pytest -m gpu``, only where there is one.

``test_devices.py`` needs no GPU, but cannot see numbers and backward passes.
"""

import copy
import json
import warnings

import pytest
import torch
from lightning import seed_everything

from protometry.callbacks import Interpretability
from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.phases.projection import nearest_patches
from protometry.datamodules.dataset import image_tensor
from protometry.lightning_modules.contract import Projectable
from protometry.metrics.suite import resolve
from tests.engine_runs import run_engine
from tests.lightning_modules.registry import MODELS, tiny_birds, tiny_trainer
from tests.rounding import terms_of, tolerance
from tests.tiny_runs import EPOCHS, STEPS_PER_EPOCH, fit, last, run_evaluation, state

pytestmark = pytest.mark.gpu
DEVICE = "cuda"
WAITS = 33  # at most, of a batch of one chunk with PRP: docs/many_gpus.md


def built(name):
    seed_everything(0, verbose=False)
    return MODELS[name](num_classes=8, image_size=(32, 32)).eval()


def noisy_batch():
    """64 birds under noise: on plain backgrounds maps are flat, and rounding decides where their peaks are."""
    data, generator = tiny_birds(test_size=64, eval_batch_size=64), torch.Generator().manual_seed(0)
    data.configure_loaders(continuity="paper")
    batch = next(iter(data.test_dataloader()))
    for name in ("image", "second_view"):
        batch[name] = (batch[name] + torch.rand(batch[name].shape, generator=generator)) / 2
    return batch


def evaluated(model, device, suite=("general", "quanproto"), batches=None):
    moved, data = copy.deepcopy(model).to(device), tiny_birds(test_size=64)
    with evaluation_mode(moved):
        return run_engine(Interpretability(list(suite)), moved, data, batches=batches or [noisy_batch()])


def nearest(model, device):
    moved = copy.deepcopy(model).to(device)
    with evaluation_mode(moved):
        return nearest_patches(moved, tiny_birds().projection_dataloader(), moved.device)


@pytest.fixture
def synchronisations():
    """Counts where the host waits for the device from then on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: sum("synchronizing CUDA operation" in str(warning.message) for warning in caught)
    torch.cuda.set_sync_debug_mode("default")


def test_images_are_those_of_the_cpu():
    levels = torch.arange(256, dtype=torch.uint8)[:, None, None, None].expand(256, 1, 1, 3)
    assert torch.equal(image_tensor(levels.to(DEVICE)).cpu(), image_tensor(levels))


@pytest.mark.parametrize("name", MODELS)
def test_an_evaluation_agrees_with_the_cpu(name):
    model = built(name)
    images = noisy_batch()["image"]
    with torch.no_grad():
        expected, moved = model(images), copy.deepcopy(model).to(DEVICE)
        with evaluation_mode(moved):
            output = moved(images.to(DEVICE))
    for field in ("logits", "scores", "maps"):
        near, far = getattr(output, field).cpu(), getattr(expected, field)
        torch.testing.assert_close(near, far, rtol=0, atol=tolerance(terms_of(model), far), msg=field)
    on_cpu, on_gpu = evaluated(model, "cpu"), evaluated(model, DEVICE)
    assert on_gpu.protocol["device"] == DEVICE
    assert on_gpu.metrics.keys() == on_cpu.metrics.keys()
    assert on_gpu.skipped == on_cpu.skipped
    apart = {}
    for key, entry in on_cpu.metrics.items():
        pair = entry["value"], on_gpu.metrics[key]["value"]
        most = 2e-2 if entry["unit"] == "cells" else 1e-3  # rounding may move a few of the 320 peaks by a cell
        if pair[1] != pytest.approx(pair[0], rel=most, abs=1e-3, nan_ok=True):
            apart[key] = (*pair, entry["unit"])
    assert not apart, "\n".join(f"{key} {values}" for key, values in apart.items())


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_walks_through_its_phases(name, precision):
    """With projections, solved heads and all other actions; where it ends, metrics are float32 whatever the precision.

    A projection of the trained model, repeated there, finds the patches that the CPU finds.
    """
    model, engine = built(name), Interpretability()
    model.plan = model.plan.override({phase.name: {"epochs": 1} for phase in model.plan.phases})
    data = tiny_birds()
    trainer = tiny_trainer(engine, accelerator="gpu" if DEVICE == "cuda" else "cpu", precision=precision)
    trainer.fit(model, datamodule=data)
    assert trainer.current_epoch == len(model.plan.phases)
    assert all(values.isfinite().all() for values in model.parameters())
    logged = engine.evaluation.metrics
    tiny_trainer(engine, accelerator="gpu" if DEVICE == "cuda" else "cpu").validate(model, data, verbose=False)
    assert {key: entry["value"] for key, entry in logged.items()} == pytest.approx(
        {key: entry["value"] for key, entry in engine.evaluation.metrics.items()}, nan_ok=True, rel=1e-6
    )
    if isinstance(model, Projectable):
        near, far = nearest(model, DEVICE), nearest(model, "cpu")
        torch.testing.assert_close(near.patch.cpu(), far.patch, rtol=0, atol=tolerance(terms_of(model), far.patch))


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_never_waits(name, synchronisations):
    model, data = built(name).to(DEVICE), tiny_birds()
    data.configure_loaders(two_views=True)
    batch = {
        key: value.to(DEVICE) if isinstance(value, torch.Tensor) else value
        for key, value in next(iter(data.train_dataloader())).items()
    }
    tiny_trainer(accelerator="gpu", limit_train_batches=1).fit(model, datamodule=data)
    model.to(DEVICE)
    model.log = lambda *args, **options: None
    model.enter_phase(0)
    model.training_step(batch, 0).backward()
    torch.cuda.set_sync_debug_mode("warn")
    model.training_step(batch, 0).backward()
    assert synchronisations() == 0


def test_the_waits_of_an_evaluation(synchronisations):
    """Of a second batch; ``test_devices.py`` counts as many on a device that is none."""
    keys = [key for key in resolve(["all"]) if not key.startswith("funnybirds/")]
    batch, counts = noisy_batch(), []

    def batches():
        torch.cuda.set_sync_debug_mode("warn")
        for _ in range(3):
            counts.append(synchronisations())
            yield batch

    evaluated(built("ProtoPNet"), DEVICE, keys, batches())
    assert 0 < counts[2] - counts[1] <= WAITS, counts


def test_a_run_of_the_cpu_goes_on_and_is_evaluated(stopped_copy):
    before = state(stopped_copy)
    assert before["global_step"] == 3 * STEPS_PER_EPOCH
    fit(stopped_copy, "--ckpt_path", "last", "--trainer.accelerator=gpu")
    assert last(stopped_copy)["global_step"] == EPOCHS * STEPS_PER_EPOCH
    run_evaluation(stopped_copy, "--trainer.accelerator=gpu")
    (path,) = (stopped_copy / "evaluation").rglob("metrics.json")
    result = json.loads(path.read_text())
    assert result["protocol"]["device"] == DEVICE
    assert result["metrics"]["general/accuracy"]["n"] == 33
