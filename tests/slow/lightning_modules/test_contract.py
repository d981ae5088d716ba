"""The contract test of models with other options, and training of all models in float32 and in half precision."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import islice

import pytest
import torch
from lightning import seed_everything
from lightning.pytorch.plugins import MixedPrecision

from protometry.callbacks import AtomicCheckpointIO
from protometry.lightning_modules.phases import PhasePlan
from tests.lightning_modules import test_contract
from tests.lightning_modules.registry import MODELS, in_every_preset, tiny_birds, tiny_trainer
from tests.lightning_modules.test_contract import SIZE, K, Watch, assert_consistent, output_of
from tests.lightning_modules.test_extension import my_model


class TestOptions(test_contract.ContractTest):
    @pytest.fixture(scope="class", params=[name for name in MODELS if " " in name])
    def build(self, request):
        return MODELS[request.param]


@pytest.mark.parametrize("name", [*MODELS, "MyModel"])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_every_phase_trains(name, precision, tmp_path, monkeypatch):
    """One batch each, in the order of the plan; finite losses; the named groups move. bfloat16: one preset."""
    monkeypatch.chdir(tmp_path)
    build = MODELS[name] if name in MODELS else my_model()
    models = in_every_preset(build, num_classes=K, image_size=SIZE)
    for model in models if precision == "32-true" else islice(models, 1):
        model.plan = model.plan.override({phase.name: {"epochs": 1} for phase in model.plan.phases})
        watch = Watch()
        trainer = tiny_trainer(watch, precision=precision, limit_train_batches=1, limit_val_batches=1)
        trainer.fit(model, datamodule=tiny_birds())
        assert watch.names == [phase.name for phase in model.plan.phases]
        assert all(torch.isfinite(loss) for loss in watch.losses)
        for phase, rates, moved in zip(model.plan.phases, watch.rates, watch.moved, strict=True):
            assert set(rates) == set(phase.trainable), phase.name
            noticeable = {name for name, rate in rates.items() if rate > 1e-6}  # OneCycle ends near 0
            assert noticeable <= moved <= set(phase.trainable), phase.name
        assert_consistent(model)


@cache
def unseen_images() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """400 images with their labels."""
    data = tiny_birds(test_size=400, batch_size=100)
    return [(batch["image"], batch["label"]) for batch in data.test_dataloader()]


@pytest.mark.parametrize("name", [name for name in MODELS if " " not in name])
def test_an_epoch_in_half_precision(name, tmp_path, monkeypatch):
    """From the weights of a short training: finite, and in bfloat16 within 2 points of an epoch in float32.

    Both are compared on the same 400 images. A difference that chance explains is allowed, since processors round
    differently.
    A CPU takes ten times as long in float16, which therefore gets a few batches.
    """
    monkeypatch.chdir(tmp_path)
    build, data, hits = MODELS[name], tiny_birds(train_size=240, batch_size=32), {}
    seed_everything(0, verbose=False)
    trained = build(num_classes=K, image_size=SIZE)
    tiny_trainer(limit_val_batches=0).fit(trained, datamodule=data)
    for precision in ("32-true", "bf16-mixed", "16-mixed"):
        model = build(num_classes=K, image_size=SIZE)
        model.load_state_dict(trained.state_dict())
        phase = max(model.plan.phases, key=lambda phase: len(phase.trainable))
        rates = {group: rate / 10 for group, rate in phase.trainable.items()}  # else chance decides, not precision
        model.plan = PhasePlan((replace(phase, epochs=1, trainable=rates, on_enter=(), on_exit=()),))
        watch = Watch()
        # where a CPU is asked for "16-mixed", Lightning takes bfloat16, unless it is given the plugin itself
        half = {"plugins": [AtomicCheckpointIO(), MixedPrecision("16-mixed", "cpu")], "limit_train_batches": 3}
        options = half if precision == "16-mixed" else {"precision": precision}
        tiny_trainer(watch, limit_val_batches=0, **options).fit(model, datamodule=data)
        assert all(torch.isfinite(loss) for loss in watch.losses)
        if precision != "16-mixed":
            right = [output_of(model, pictures).logits.argmax(1) == labels for pictures, labels in unseen_images()]
            hits[precision] = 100 * torch.cat(right).double()
    assert hits["32-true"].mean() > 100 / K, "nothing was learnt"
    gaps = hits["bf16-mixed"] - hits["32-true"]
    assert gaps.mean().abs() - 1.96 * gaps.std() / len(gaps) ** 0.5 <= 2, gaps.mean()
