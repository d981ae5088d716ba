"""Models, explainers, metrics and the engine on tensors that claim to be on CUDA, which needs no GPU.

A tensor made on another device fails here as it would there, and every place where the host waits for the device is
noted; docs/many_gpus.md sums them up. Answers to the host are made up."""

import pytest

from protometry.metrics.suite import resolve
from tests.integration.test_devices import AMPLIFIED, CHECK, FINITE, LADDER, built, one_batch_seen

FIRST = "protometry.metrics.primitives.perturbation.normal_quantiles"  # the table of noise, once per process


OWNED, NAMED = "protometry.callbacks.evaluation.clean_view.owned_units", "protometry.metrics.facts.named"  # per pass


DRAWN = "protometry.callbacks.forward.untrained_backbone._drawn"  # per pass


@pytest.mark.parametrize("name", ["ProtoPNet", "ProtoTree", "PIPNet"])
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
