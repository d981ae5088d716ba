"""The contract test: what every model must answer, over ``registry.MODELS``.

``ContractTest`` is written against the contract only; a test class that provides the fixture ``build`` inherits all
of it (see ``test_extension.py`` for a model that is not in the registry).
"""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning import Callback, seed_everything

from protometry.callbacks import Interpretability
from protometry.callbacks.phases.phase_schedule import ACTIONS
from protometry.callbacks.phases.projection import project
from protometry.callbacks.phases.pruning import Prunable
from protometry.callbacks.phases.ranks import state_hash
from protometry.lightning_modules import InterpretableModule
from protometry.lightning_modules.contract import (
    FitsConcepts,
    FitsHead,
    InterpretableModel,
    ModelOutput,
    Projectable,
    ScoresUnits,
    logits_of,
)
from protometry.lightning_modules.phases import FIT_HEAD
from protometry.metrics.suite import resolve
from tests.engine_runs import run_engine
from tests.lightning_modules.registry import MODELS, in_every_preset, tiny_birds, tiny_trainer
from tests.rounding import terms_of, tolerance

K = 8
SIZE = (32, 32)
Build = Callable[..., InterpretableModule]
close = torch.testing.assert_close


def images(batch: int = 4, size: tuple[int, int] = SIZE) -> torch.Tensor:
    return torch.rand(batch, 3, *size, generator=torch.Generator().manual_seed(batch))


def output_of(model: InterpretableModule, pictures: torch.Tensor) -> ModelOutput:
    with torch.no_grad():
        return model.eval()(pictures)


def tensors_of(output: ModelOutput) -> dict[str, torch.Tensor]:
    named = {"logits": output.logits, "scores": output.scores, "maps": output.maps} | output.extras
    return named | {name: value for name in ("latent", "cells") if (value := getattr(output, name)) is not None}


def same(first: torch.Tensor, second: torch.Tensor, terms: int, name: str) -> None:
    """Equal but for the rounding of sums of so many terms."""
    close(first, second, msg=name, rtol=0, atol=tolerance(terms, second.float()))


def decide(model: InterpretableModule) -> InterpretableModule:
    """Whatever the model can be put through that changes its units: projection, pruning of every third."""
    if isinstance(model, Projectable):
        project(SimpleNamespace(datamodule=tiny_birds()), model)
    if isinstance(model, Prunable):
        model.prune(torch.arange(len(model.units().active)) % 3 > 0)
    if isinstance(model, FitsConcepts):
        model.fit_concepts(*embedded(model), seed=0)
    return model


def embedded(model: InterpretableModule) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Embeddings, concepts and classes of images in which every fifth concept is in none; concepts tell classes."""
    units, labels = len(model.units().active), torch.arange(6 * K) % K
    generator = torch.Generator().manual_seed(0)
    concepts = (torch.rand(K, units, generator=generator) < 0.5)[labels] & (torch.arange(units) % 5 > 0)
    directions = torch.rand(units, model.backbone.out_channels, generator=generator)
    return concepts.float() @ directions + torch.rand(6 * K, 1, generator=generator), concepts, labels


def assert_equal_tables(first: Any, second: Any) -> None:
    """All fields of two unit tables, or two source tables, are equal."""
    for field in fields(first):
        a, b = getattr(first, field.name), getattr(second, field.name)
        if field.name == "source" and a is not None:
            assert_equal_tables(a, b)
        elif isinstance(a, torch.Tensor):
            assert torch.equal(a, b), field.name
        else:
            assert a == b, field.name


def assert_equal(first: InterpretableModule, second: InterpretableModule) -> None:
    """Two models have equal weights, units and outputs."""
    assert state_hash(first) == state_hash(second)
    assert_equal_tables(first.units(), second.units())
    outputs = [tensors_of(output_of(model, images())) for model in (first, second)]
    assert all(torch.equal(outputs[0][name], outputs[1][name]) for name in outputs[0])


def assert_consistent(model: InterpretableModule) -> None:
    """Inactive units score nothing and own no decision; contributions add up."""
    output, table = output_of(model, images(size=model.image_size)), model.units()
    dead = ~table.active
    assert not table.owner[dead].any()
    assert (output.scores[:, dead] == 0).all()
    if table.weight is not None:
        assert (table.weight[:, dead] == 0).all()
    context = output.extras.get("context")
    nothing = None if context is None else torch.zeros_like(context[:1])
    bias = logits_of(model, torch.zeros(1, output.scores.shape[1]), nothing)[0]
    for classes in (torch.arange(4) % output.logits.shape[1], torch.full((4,), output.logits.shape[1] - 1)):
        shares, rows = model.contributions(output, classes), torch.arange(4)
        assert shares.shape == output.scores.shape
        assert (shares[:, dead] == 0).all()
        if table.weight is None and context is None:
            continue
        if table.weight is not None:
            close(shares, table.weight[classes] * output.scores)
        residual = output.extras.get("residual", torch.zeros_like(output.logits))
        expected = (output.logits - residual)[rows, classes] - bias[classes]
        terms, size = shares.shape[1], max(shares.detach().abs().sum(1).max(), output.logits.abs().max()).item()
        close(shares.sum(1), expected, rtol=0, atol=tolerance(terms, size))


def after_every_action(model: InterpretableModule, folder: Path, data: Any) -> Iterator[str]:
    """The names of the actions of a plan that suit the model, each as soon as it has changed it."""
    strategy = SimpleNamespace(broadcast=lambda value: value, barrier=lambda: None)
    trainer = SimpleNamespace(datamodule=data, default_root_dir=folder, strategy=strategy, loggers=[],
                              is_global_zero=True, current_epoch=0)  # fmt: skip
    for name in [*model.actions, *ACTIONS]:
        if name == FIT_HEAD and not isinstance(model, FitsHead):
            continue
        try:
            ACTIONS[name](trainer, model) if name in ACTIONS else getattr(model, name)(trainer)
        except TypeError as error:
            if not str(error).startswith("Expected a model"):
                raise
            continue
        yield name


class ContractTest:
    @pytest.fixture(scope="class")
    def build(self) -> Build:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def own_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Runs without a folder of their own write here."""
        monkeypatch.chdir(tmp_path)

    @pytest.fixture(scope="class")
    def fresh(self, build: Build) -> InterpretableModule:
        """A model whose BatchNorm statistics are no longer 0 and 1, in evaluation mode; for tests that only read it."""
        torch.manual_seed(0)
        model = build(num_classes=K, image_size=SIZE)
        with torch.no_grad():
            model.train()(images(8))
        return model.eval()

    @pytest.fixture(scope="class")
    def decided(self, fresh: InterpretableModule) -> InterpretableModule:
        """That model after all that changes its units; only to be read as well."""
        return decide(copy.deepcopy(fresh)).eval()

    @pytest.fixture(params=["fresh", "decided"])
    def any_model(
        self, fresh: InterpretableModule, decided: InterpretableModule, request: pytest.FixtureRequest
    ) -> InterpretableModule:
        return {"fresh": fresh, "decided": decided}[request.param]

    @pytest.fixture
    def model(self, fresh: InterpretableModule) -> InterpretableModule:
        """A copy that a test may change."""
        return copy.deepcopy(fresh)

    # -- what it sees ------------------------------------------------------------------------------------------------
    def test_shapes_and_dtypes(self, build, fresh):
        for batch, size in ((4, SIZE), (1, SIZE), (2, (32, 64)), (1, (48, 80))):
            model = fresh if size == SIZE else build(num_classes=K, image_size=size)
            output, table, (h, w) = output_of(model, images(batch, size)), model.units(), model.geometry.grid
            units = len(table.active)
            assert isinstance(model, InterpretableModel)
            assert model.geometry.image == size
            assert output.logits.shape == (batch, K)
            assert output.scores.shape == (batch, units)
            assert output.maps.shape == (batch, units, h, w)
            assert output.latent is None or output.latent.shape[::2] == (batch, h)
            assert all(len(tensor) == batch for tensor in output.extras.values())
            assert {t.dtype for t in (output.logits, output.scores, output.maps)} == {torch.float32}
            assert table.active.dtype == table.owner.dtype == torch.bool
            assert table.owner.shape == (units, K)
            assert table.weight is None or table.weight.shape == (K, units)
            assert table.vectors is None or table.vectors.shape == (units, table.parts * output.latent.shape[1])

    def test_units_scored_without_the_others_score_the_same(self, any_model):
        """Bit for bit; gradients too, but for cosines, whose norms the backward pass adds up in another order."""
        if not isinstance(any_model, ScoresUnits):
            return
        active = any_model.units().active.nonzero().squeeze(1)
        several, one = active[torch.tensor([[0, 2], [1, 0], [3, 3], [2, 1]])], active[:4, None]
        assert torch.equal(any_model.unit_scores(images(), several), any_model(images()).scores.gather(1, several))
        pixels = [images().requires_grad_() for _ in range(2)]
        scores = [any_model(pixels[0]).scores.gather(1, one), any_model.unit_scores(pixels[1], one)]
        gradients = [torch.autograd.grad(*pair)[0] for pair in zip([s.sum() for s in scores], pixels, strict=True)]
        assert torch.equal(*scores)
        assert gradients[0].any()
        assert (gradients[0] - gradients[1]).abs().max() <= tolerance(any_model.units().vectors.shape[1], gradients[0])

    def test_an_output_depends_on_its_image_alone(self, any_model):
        """Not on the batch, its order and what was asked before; and nothing of the model changes."""
        before, order, terms = state_hash(any_model), torch.tensor([2, 0, 3, 1]), terms_of(any_model)
        pictures = images()
        output = output_of(any_model, pictures)
        any_model.contributions(output, torch.zeros(4, dtype=torch.int64))
        again, alone, permuted = (
            tensors_of(output_of(any_model, each)) for each in (pictures, pictures[:1], pictures[order])
        )
        for name, tensor in tensors_of(output).items():
            assert torch.equal(again[name], tensor), f"{name} when asked again"
            same(alone[name], tensor[:1], terms, f"{name} of one image alone")
            same(permuted[name], tensor[order], terms, f"{name} of images in another order")
        assert state_hash(any_model) == before

    # -- how it decides ----------------------------------------------------------------------------------------------
    def test_scores_are_pooled_maps_and_make_the_logits(self, any_model):
        output, table = output_of(any_model, images()), any_model.units()
        peak, mean = output.maps.amax((2, 3)), output.maps.mean((2, 3))
        pooled = {"max": peak, "mean": mean, "focal": peak - mean, "sum": output.maps.sum((2, 3))}[table.pool]
        given = output.extras.get("pooled", output.scores)
        same(given[:, table.active], pooled[:, table.active], output.maps[0, 0].numel(), "scores")
        residual = output.extras.get("residual", torch.zeros(()))  # what no unit explains
        logits = logits_of(any_model, output.scores, output.extras.get("context")) + residual
        assert torch.equal(logits, output.logits)
        probabilities = any_model.probabilities(output.logits)
        assert probabilities.shape == (4, K)
        assert ((probabilities >= 0) & (probabilities <= 1)).all()
        assert torch.equal(probabilities.argmax(1), output.logits.argmax(1))

    def test_inactive_units_are_silent(self, model):
        if not isinstance(model, Prunable):
            pytest.skip("no unit can be deactivated")
        maps = output_of(model, images()).maps
        model.prune(torch.arange(len(model.units().active)) % 2 == 0)
        output, table = output_of(model, images()), model.units()
        dead = ~table.active
        assert dead.sum() == len(dead) // 2
        assert (output.scores[:, dead] == 0).all()
        assert torch.equal(output.maps, maps)
        for label in range(K):
            assert (model.contributions(output, torch.full((4,), label))[:, dead] == 0).all()

    def test_units_agree_with_each_other(self, any_model):
        assert_consistent(any_model)
        assert any_model.units().owner.any(dim=0).all(), "a class without any unit"

    def test_units_agree_after_every_action(self, model, tmp_path):
        done = []
        for name in after_every_action(model, tmp_path, tiny_birds()):
            assert_consistent(model)
            done.append(name)
        planned = {name for phase in model.plan.phases for name in (*phase.on_enter, *phase.on_exit)}
        assert planned <= {*done}

    # -- what is kept ------------------------------------------------------------------------------------------------
    def test_a_saved_model_comes_back(self, any_model):
        file = io.BytesIO()
        torch.save(any_model.state_dict(), file)
        file.seek(0)
        torch.manual_seed(1)
        again = type(any_model)(**any_model.hparams)
        again.load_state_dict(torch.load(file, weights_only=True), strict=True)
        assert_equal(any_model, again)

    def test_projection_is_remembered(self, fresh, decided):
        if not isinstance(fresh, Projectable):
            pytest.skip("nothing to project")
        assert fresh.units().source is None
        source = decided.units().source
        assert source.found.any()
        assert all(bool(name) == bool(result) for name, result in zip(source.sample_id, source.found, strict=True))

    # -- how it is trained -------------------------------------------------------------------------------------------
    def test_every_term_of_a_phase_trains_and_exactly_its_groups(self, build, fresh):
        grouped = [id(p) for members in fresh.parameter_groups().values() for p in members]
        assert len(grouped) == len(set(grouped))
        assert set(grouped) == {id(p) for p in fresh.parameters()}
        for model, batch in phases_of(build):
            output, phase, sums = model(batch["image"]), model.phase, {}
            trained = [p for p in model.parameters() if p.requires_grad]
            for name, weight in phase.losses.items():
                value = model.loss_terms()[name](output, batch)
                assert value.shape == ()
                assert value.dtype == torch.float32
                gradients = torch.autograd.grad(value, trained, retain_graph=True, allow_unused=True)
                reached = {id(p): weight * g for p, g in zip(trained, gradients, strict=True) if g is not None}
                assert any((g != 0).any() for g in reached.values()), (phase.name, name)
                sums = {key: sums.get(key, 0) + reached.get(key, 0) for key in sums | reached}
            for group, members in model.parameter_groups().items():
                if group not in phase.trainable:
                    assert not any(id(p) in sums for p in members), (phase.name, group)
                    continue
                assert all(id(p) in sums and sums[id(p)].isfinite().all() for p in members), (phase.name, group)
                assert any((sums[id(p)] != 0).any() for p in members), (phase.name, group)

    def test_several_labels_per_image(self, build):
        """Every phase of the sketch plan trains, the suite gives numbers or reasons, and all of it is saved."""
        data = tiny_birds(task="attributes")
        options = {"num_classes": data.num_classes, "image_size": SIZE, "task": "multilabel"}
        if "multilabel" not in build(num_classes=K, image_size=SIZE).tasks:
            with pytest.raises(ValueError, match=r"`task` of \w+ to be one of \('multiclass',\), but got 'multilabel'"):
                build(**options)
            return
        seed_everything(0, verbose=False)
        model = build(**options)
        solved = {"head": {"penalty": 0.01}}  # a few passes suffice
        changes = {p.name: {"epochs": 1} | (solved if FIT_HEAD in p.on_enter else {}) for p in model.plan.phases}
        model.plan = model.plan.override(changes)
        watch = Watch()
        tiny_trainer(watch, Interpretability(), limit_train_batches=1).fit(model, datamodule=data)
        assert watch.names == [phase.name for phase in model.plan.phases]
        assert all(torch.isfinite(loss) for loss in watch.losses)
        assert_consistent(model)
        again = build(**options)
        assert again.task == "multilabel"
        assert again.decision_threshold == 0
        again.load_state_dict(model.state_dict())
        assert again.decision_threshold == model.decision_threshold != 0
        assert_equal(model, again)
        result = run_engine(Interpretability(["quanproto"]), again.eval(), data)
        assert {*result.metrics, *result.skipped} == set(resolve(["quanproto"]))
        assert not math.isnan(result.metrics["general/f1"]["value"])
        assert result.protocol["decision_threshold"] == model.decision_threshold.item()

    def test_predictions_of_a_trainer(self, model):
        """Of the test split, in its order, and on the CPU."""
        data = tiny_birds()
        test = data.dataset("test")
        batches = tiny_trainer().predict(model, datamodule=data)
        actual = {name: [row for batch in batches for row in batch[name]] for name in batches[0]}
        expected = [(name, int(label)) for name, label in zip(test.sample_ids, test.labels, strict=True)]
        assert [
            (name, int(label)) for name, label in zip(actual["sample_id"], actual["label"], strict=True)
        ] == expected
        assert list(actual) == ["sample_id", "label", "prediction", "probabilities", "logits", "scores"]
        output = output_of(model, next(iter(data.test_dataloader()))["image"])
        close(torch.stack(actual["logits"]), output.logits)
        close(torch.stack(actual["scores"]), output.scores)
        close(torch.stack(actual["probabilities"]), model.probabilities(output.logits))
        abstains = output.extras.get("abstain", torch.zeros(len(output.logits), dtype=torch.bool))
        assert torch.stack(actual["prediction"]).tolist() == output.logits.argmax(1).masked_fill(abstains, -1).tolist()


def phases_of(build: Build):
    """A fresh model at the start of each phase of each preset, with a training batch; of equal phases the first."""
    batch, seen = next(iter(tiny_birds().train_dataloader())), set()
    for model in in_every_preset(build, num_classes=K, image_size=SIZE):
        shapes = tuple(parameter.shape for parameter in model.parameters())
        for index, phase in enumerate(model.plan.phases):
            equal = (shapes, frozenset(phase.trainable), frozenset(phase.losses.items()), repr(phase.bn))
            if equal not in seen:
                seen.add(equal)
                model.zero_grad()
                model.enter_phase(index)
                yield model, batch


class Watch(Callback):
    """Phase names, losses and learning rates of all steps, and the groups each step moved."""

    def __init__(self):
        self.names, self.losses, self.rates, self.moved = [], [], [], []

    @staticmethod
    def _copy(model):
        return {name: [p.detach().clone() for p in members] for name, members in model.parameter_groups().items()}

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self._before = self._copy(pl_module)
        self.rates.append({group["name"]: group["lr"] for group in trainer.optimizers[0].param_groups})

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.names.append(pl_module.phase.name)
        self.losses.append(outputs["loss"])
        after = self._copy(pl_module)
        moved = {n for n in after if any(not torch.equal(a, b) for a, b in zip(self._before[n], after[n], strict=True))}
        self.moved.append(moved)


class TestRegistry(ContractTest):
    """A model of every class; those with other options are in ``tests/slow``."""

    @pytest.fixture(scope="class", params=[name for name in MODELS if " " not in name])
    def build(self, request: pytest.FixtureRequest) -> Build:
        return MODELS[request.param]
