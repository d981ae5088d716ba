"""PIPNet with a solved head, and in two processes."""

from __future__ import annotations

import pytest
import torch

from protometry.lightning_modules.pipnet import paired
from tests.lightning_modules.test_pipnet import Weights, close, fitted, make, short, training_batch


def test_a_solved_head_has_no_proximal_step():
    model = short("head", shrinkage=5e-3)
    solve = {"scheduler": None, "on_enter": ["fit_head"], "head": {"penalty": 1e-6, "nonnegative": True}}
    model.plan = model.plan.override({"head": solve})
    watch = Weights()
    fitted(model, watch)
    assert watch.heads[0].any()
    assert all(torch.equal(head, model.linear.weight) for head in watch.heads)


def gradients_of_a_share(rank, world_size, batch):
    """Losses and gradients of one process's images, the gradients averaged as DDP does."""
    model = make()
    model.enter_phase(0)
    model.eval()  # BatchNorm sees each process's images alone, whatever the losses do
    share = paired({name: tensor[rank::world_size] for name, tensor in batch.items()})
    terms, output = model.loss_terms(), model(share["image"])
    losses = {name: terms[name](output, share) for name in ("alignment", "tanh_uniformity")}
    sum(losses.values()).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    if world_size > 1:
        for gradient in gradients.values():
            torch.distributed.all_reduce(gradient)
            gradient /= world_size
    return {name: loss.item() for name, loss in losses.items()}, gradients


def test_two_processes_have_the_gradient_of_one(ddp_pool):
    """The tanh term sums over the images of all processes: its value, and DDP's averaged gradient, are those of one."""
    batch = training_batch(8)
    alone, gradients = gradients_of_a_share(0, 1, batch)
    for losses, shared in ddp_pool.run(gradients_of_a_share, batch):
        assert losses["tanh_uniformity"] == pytest.approx(alone["tanh_uniformity"], rel=1e-6)
        assert shared.keys() == gradients.keys()
        for name, gradient in gradients.items():
            close(shared[name], gradient, rtol=1e-4, atol=1e-6, msg=name)
