"""Scores of the training images, kept while a phase trains nothing but what reads them.

In a phase of the head alone, neither backbone nor prototypes move. Where every epoch shows the same images, each has
the same scores in all of them: the model sees every image once, and the loader then hands out scores instead of images.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any, Protocol, cast, runtime_checkable

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from protometry.callbacks.trainer_parts import model_of
from protometry.lightning_modules.bases.interpretable import InterpretableModule

MOST_BYTES = 2**31  # of the scores, in every process; more are not kept


@runtime_checkable
class Keeping(Protocol):
    """A loader of batches of images that can hand out something else in their place."""

    dataset: Sized
    kept: dict[str, Any] | None

    def keep(self, name: str, see: Callable[[Tensor], Tensor]) -> None:
        """Show every image once; from then on batches have a field ``name`` instead of ``image``."""
        ...


def keep_scores(trainer: Trainer, module: LightningModule, epochs: int, begins: bool) -> None:
    """Let the training loader hand out scores if the phase under way reads nothing else, unless one epoch is left.

    The host's memory holds ``(n, U)`` float32 numbers and the other fields of the batches, three times as much while
    they are sorted. Scores come from full batches in the precision of training, and depend neither on the number of
    processes nor on when a run was resumed. A run that keeps no scores ends with the same weights, bit for bit, as long
    as the scores of an image do not depend on the size of its batch: with a ResNet on a CPU they do, in a last batch of
    fewer than 16 images.
    """
    loader = trainer.train_dataloader
    if not isinstance(loader, Keeping):
        return
    if begins:
        loader.kept = None
    size = 4 * len(loader.dataset) * len(model_of(module).units().active)
    if loader.kept is not None or epochs < 2 or size > MOST_BYTES or not _scores_stay(trainer, module):
        return

    @torch.no_grad()
    def scores(images: Tensor) -> Tensor:
        with trainer.precision_plugin.forward_context():
            return cast(Tensor, module(images.to(module.device)).scores.cpu())

    loader.keep("scores", scores)
    rank_zero_info(f"Keeping the scores of {len(loader.dataset)} training images for {epochs} epochs of the head.")


def _scores_stay(trainer: Trainer, module: LightningModule) -> bool:
    """Whether the decision needs the scores alone, and an image has the same ones in every epoch."""
    untyped = cast(Any, trainer)  # mypy does not see all attributes of a trainer
    model = cast(InterpretableModule, module)
    if not model.reads_scores_only() or untyped.overfit_batches or not untyped.datamodule.fixed_training_images:
        return False
    black = torch.zeros(1, 3, *model.geometry.image, device=model.device)
    before = _generators(module.device)
    with torch.enable_grad(), trainer.precision_plugin.forward_context():
        output = module(black)
        decided = model.decide(output.scores).logits  # a residual is not part of it
    unmoved = all(map(torch.equal, before, _generators(module.device)))  # a forward that draws, as dropout, moves them
    return unmoved and not output.scores.requires_grad and torch.equal(decided, output.logits)


def _generators(device: torch.device) -> list[Tensor]:
    """The states of the generators that a forward may draw from."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
