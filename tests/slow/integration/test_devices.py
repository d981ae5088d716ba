"""Models, explainers, metrics and the engine on tensors that claim to be on CUDA, which needs no GPU.

A tensor made on another device fails here as it would there, and every place where the host waits for the device is
noted; docs/many_gpus.md sums them up. Answers to the host are made up."""

import pytest

from protometry.metrics.suite import resolve
from tests.explanations.registry import EXPLAINERS
from tests.integration.test_devices import (
    AMPLIFIED,
    CHECK,
    FINITE,
    LADDER,
    SOME_EXPLAINERS,
    SOME_MODELS,
    assert_no_step_waits,
    assert_waits,
    built,
    one_batch_seen,
)
from tests.lightning_modules.registry import MODELS

FIRST = "protometry.metrics.primitives.perturbation.normal_quantiles"  # the table of noise, once per process


OWNED, NAMED = "protometry.callbacks.evaluation.clean_view.owned_units", "protometry.metrics.facts.named"  # per pass


DRAWN = "protometry.callbacks.forward.untrained_backbone._drawn"  # per pass


@pytest.mark.parametrize("name", ["ProtoPNet", "ProtoTree"])
def test_waits_of_an_evaluation(cuda, name):
    """All metrics on a batch of one chunk: seven explained forwards, two of five units and five of one."""
    model = built(name, cuda)
    # the protocol of FunnyBirds waits for every chunk: the host draws the birds without parts; heads and directions
    # are solved before, see below
    hosts = (
        "funnybirds/",
        "concepts/locality",
        "concepts/anec",
        "concepts/completeness",
        "concepts/tcav",
        "sanity/exchanged",
    )
    keys = [key for key in resolve(["all"]) if not key.startswith(hosts)]
    engine, run = one_batch_seen(keys, model, cuda)
    once = {FIRST: 1, OWNED: 1, DRAWN: sum(p.ndim > 1 for p in model.backbone.parameters())} | (
        {} if name == "ProtoTree" else {NAMED: 1}
    )
    assert cuda.places == {CHECK: 7, LADDER: 30, AMPLIFIED: 7, FINITE: 1} | once
    engine.on_test_epoch_end(run, model)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in SOME_MODELS])
def test_no_step_of_a_model_waits(cuda, name):
    assert_no_step_waits(cuda, name)


@pytest.mark.parametrize("name", [name for name in EXPLAINERS if name not in SOME_EXPLAINERS])
def test_waits_of_an_explainer(cuda, name):
    assert_waits(cuda, name)
