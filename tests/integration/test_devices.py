"""Models, explainers, metrics and the engine on tensors that claim to be on CUDA, which needs no GPU.

A tensor made on another device fails here as it would there, and every place where the host waits for the device is
noted; docs/many_gpus.md sums them up. Answers to the host are made up.
"""

import copy
import sys
from collections import Counter
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from protometry.callbacks import Interpretability, PhaseSchedule
from protometry.callbacks.evaluation import interpretability
from protometry.callbacks.phases.projection import nearest_patches, source_table
from protometry.datamodules.dataset import with_float_images
from protometry.explanations import Targets
from protometry.lightning_modules.contract import Projectable, SelectsFeatures, logits_of
from protometry.metrics.primitives.perturbation import normal_quantiles
from tests.engine_runs import Run
from tests.explanations.registry import EXPLAINERS
from tests.lightning_modules.registry import MODELS, tiny_birds

WAITING = ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::masked_select", "aten::bincount")
CHECK, FINITE = "protometry.explanations.explainer._check", "protometry.callbacks.forward.observer.refuse_broken"
LADDER = "protometry.explanations.relevance.prp_and_lrp_rules.settle"
AMPLIFIED = "protometry.explanations.relevance.propagation.attribute"
SUMMED, BOXES = "protometry.explanations.summed_maps", "protometry.explanations.summed_maps._boxes"
PROJECTION = "protometry.callbacks.phases.projection.patch_distances"
BATCH = {
    "image": torch.zeros(4, 3, 32, 32), "second_view": torch.zeros(4, 3, 32, 32),
    "label": torch.zeros(4, dtype=torch.int64), "sample_key": torch.zeros(4, dtype=torch.int64),
    "sample_id": list("abcd"), "concepts": torch.zeros(4, 20, dtype=torch.bool),
}  # fmt: skip


class Waits(TorchDispatchMode):
    """Counts where the host waits for the device, by module and function.

    ``answer`` is the value the host reads; masks are taken to be true everywhere.
    """

    def __init__(self):
        super().__init__()
        self.places, self.answer = Counter(), 0

    def note(self):
        frame = sys._getframe(1)
        while frame and frame.f_globals["__name__"].split(".")[0] != "protometry":
            frame = frame.f_back
        if frame:  # else the test itself
            self.places[f"{frame.f_globals['__name__']}.{frame.f_code.co_name}"] += 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        options, name = kwargs or {}, func._schema.name
        tensors = [leaf for leaf in _pytree.arg_tree_leaves(*args, **options) if isinstance(leaf, torch.Tensor)]
        devices = {tensor.device.type for tensor in tensors}
        if name in WAITING and isinstance(args[0], FakeTensor):
            return self.wait(name, args[0])
        if name == "aten::unique_dim":  # as if all were different
            self.note()
            count = args[0].shape[args[1]]
            return args[0], torch.arange(count, device=args[0].device), torch.ones(count, device=args[0].device)
        if name in ("aten::index", "aten::index_put", "aten::index_put_") and torch.bool in _dtypes(args[1]):
            self.note()
            chosen = [torch.arange(len(i), device="cuda") if torch.bool in _dtypes([i]) else i for i in args[1]]
            args = (args[0], chosen, *args[2:])
        if name in ("aten::_to_copy", "aten::copy_"):
            target = {torch.device(options["device"]).type} if options.get("device") else set()
            if len(devices | target) > 1 and not (options.get("non_blocking") or True in args[2:]):
                self.note()
        elif len(devices) > 1 and torch.Tag.pointwise not in func.tags:
            raise RuntimeError(f"Expected the tensors of {name} on one device, but got {devices}.")
        return func(*args, **options)

    def wait(self, name, tensor):
        if tensor.device.type == "cuda":
            self.note()
        if name == "aten::nonzero":
            return torch.empty(tensor.numel(), tensor.ndim, dtype=torch.int64, device=tensor.device)
        kind = bool if tensor.dtype == torch.bool else float if tensor.is_floating_point() else int
        return kind(self.answer)


def _dtypes(tensors):
    return {tensor.dtype for tensor in tensors if tensor is not None}


@pytest.fixture
def cuda(monkeypatch):
    """Tensors may claim to be on CUDA; backward passes, all of whose kernels are torch's, are left out."""
    waits = Waits()

    def gradient(outputs, inputs, *args, **options):
        assert outputs.device == inputs.device
        return (torch.empty_like(inputs),)

    def zeros(tensor):
        waits.note()
        return _nested(tensor.shape)

    def copied(value):
        return value.clone() if isinstance(value, FakeTensor) else copy.deepcopy(value)

    monkeypatch.setattr(torch.autograd, "grad", gradient)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch, "Event", Mock())
    real, drawn = torch.Generator, SimpleNamespace(manual_seed=lambda seed: None)
    monkeypatch.setattr(torch, "Generator", lambda device=None: drawn if device else real())
    monkeypatch.setattr(FakeTensor, "tolist", zeros)
    monkeypatch.setattr("torchmetrics.metric.deepcopy", copied)
    normal_quantiles.cache_clear()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    with FakeTensorMode(allow_non_fake_inputs=False) as waits.mode, waits:
        yield waits
    torch.__future__.set_overwrite_module_params_on_conversion(False)
    normal_quantiles.cache_clear()


def _nested(shape):
    return [_nested(shape[1:]) for _ in range(shape[0])] if shape else 0


def fake(values, device="cuda"):
    return {
        name: torch.empty(value.shape, dtype=value.dtype, device=device) if isinstance(value, torch.Tensor) else value
        for name, value in values.items()
    }


def built(name, cuda):
    with _disable_current_modes():
        model = MODELS[name](num_classes=8, image_size=(32, 32)).eval()
    model.log = lambda *args, **options: None
    cuda.mode.allow_non_fake_inputs = True
    model.to("cuda")
    cuda.mode.allow_non_fake_inputs = False
    cuda.places.clear()
    return model


def test_images_become_float_on_the_device(cuda):
    pixels = torch.zeros(4, 32, 32, 3, dtype=torch.uint8)
    batch = with_float_images({"image": pixels, "second_view": pixels}, torch.device("cuda"))
    assert {(batch[name].device.type, batch[name].dtype) for name in batch} == {("cuda", torch.float32)}
    assert not cuda.places


def assert_no_step_waits(cuda, name):
    model, batch = built(name, cuda), fake(BATCH)
    output = model(batch["image"])
    model.contributions(output, batch["label"])
    model.probabilities(logits_of(model, output.scores, output.extras.get("context")))
    model.units()
    model.on_test_epoch_start()
    model.test_step(batch, 0)
    schedule, phases = PhaseSchedule(), model.phases().phases
    model.trainer = SimpleNamespace(num_training_batches=3, global_step=0, current_epoch=0, is_last_batch=False)
    cuda.answer = 1  # the loss is finite
    for index in {frozenset(phase.losses): index for index, phase in enumerate(phases)}.values():
        model.enter_phase(index)
        cuda.places.pop("protometry.lightning_modules.heads.gumbel_slots.read_seed", None)  # once per phase
        loss = model.training_step(batch, 0)
        schedule.on_train_batch_end(model.trainer, model, {"loss": loss}, batch, 0)
    if isinstance(model, SelectsFeatures):
        model.feature_sums().update(output.maps, batch["label"])
    assert not cuda.places
    if isinstance(model, Projectable):
        nearest = nearest_patches(model.eval(), [fake(BATCH, "cpu")] * 2, model.device)
        assert cuda.places == {PROJECTION: 4}  # two batches
        valid = torch.isfinite(nearest.distance)
        model.load_patches(nearest.patch, valid, source_table(model, nearest, valid, {0: "a"}))


SOME_MODELS, SOME_EXPLAINERS = ("ProtoPNet", "PIPNet", "QPM", "CEM"), ("PRP", "BoxMaps", "CoAM")  # others: tests/slow


@pytest.mark.parametrize("name", SOME_MODELS)
def test_no_step_of_a_model_waits(cuda, name):
    assert_no_step_waits(cuda, name)


def assert_waits(cuda, name):
    """For two targets: one check of their ids; of a propagation one more, and two where new windows are looked at; of
    boxes one for those that are there, one for the most of an image, and with the reference's slip one more."""
    extra = {
        "PRP": {LADDER: 4, AMPLIFIED: 1}, "LRP": {LADDER: 2, AMPLIFIED: 1},
        "AttnLRP": {AMPLIFIED: 1},
        "BoxMaps": {BOXES: 2, f"{SUMMED}._stack": 2}, "BoxMaps reference": {BOXES: 4, f"{SUMMED}._stack": 2},
    }  # fmt: skip
    model, batch = built("PosthocCBM" if name.startswith("CoAM") else "ProtoPNet", cuda), fake(BATCH)
    cuda.answer = 1
    explainer = EXPLAINERS[name]()
    normal_quantiles(batch["image"].device)
    explainer.supports(model)
    cuda.answer = 0
    targets = Targets(min(explainer.explains), torch.empty(4, 2, dtype=torch.int64, device="cuda"))
    for _ in range(2):  # what is copied to the device once stays there
        cuda.places.clear()
        output = explainer.observe(model, batch["image"])
        maps = explainer.attribute(model, batch["image"], targets, output=output, sample_ids=batch["sample_key"])
    assert maps.device.type == "cuda"
    assert cuda.places == {CHECK: 1} | extra.get(name, {})


@pytest.mark.parametrize("name", SOME_EXPLAINERS)
def test_waits_of_an_explainer(cuda, name):
    assert_waits(cuda, name)


def one_batch_seen(keys, model, cuda):
    """An engine, its run, and the waits of the first batch alone."""
    with _disable_current_modes():
        data = tiny_birds(test_size=9)
        assert data.tables  # kept for all data modules, so not fake ones
    engine, run = Interpretability(keys, memory_budget=2**-7), Run(data)  # GiB for eight images per forward
    engine.setup(run, model, "test")
    with unset_fake_temporarily():
        batch = next(iter(data.test_dataloader()))
    cuda.answer = 2  # some units are active
    cuda.mode.allow_non_fake_inputs = True  # tables of the data
    engine.on_test_start(run, model)
    cuda.mode.allow_non_fake_inputs, cuda.answer = False, 0
    cuda.places.clear()
    engine.on_test_batch_end(run, model, None, fake(batch), 0)
    return engine, run


def test_solved_heads_and_directions_wait_for_nothing(cuda, monkeypatch):
    model = built("ConceptBottleneck", cuda)
    latent, units = model.concepts.in_features, model.concepts.out_features

    def heads(facts, module, datamodule, memory_budget, fields):
        kind = {"dtype": torch.float64, "device": "cuda"}
        return dict.fromkeys(fields, (torch.empty(6, 8, units, **kind), torch.empty(6, 8, **kind)))

    directions = torch.empty(2, units, latent, device="cuda")
    monkeypatch.setattr(interpretability, "solve_sparse_heads", heads)
    monkeypatch.setattr(interpretability, "concept_directions", lambda *args: directions)
    keys = ["concepts/anec@5", "concepts/anec_avg", "concepts/completeness", "concepts/tcav_auc"]
    engine, _ = one_batch_seen(keys, model, cuda)
    assert list(engine.this_pass.metrics) == keys
    assert cuda.places == {FINITE: 1}
