"""Lightning's ``EarlyStopping`` in a schedule of phases: it ends the phase under way, and starts over with every phase.

A score of one phase says nothing about the next: accuracy falls with a projection, and a last layer would never regain
what training reached before it. So patience is counted within a phase.
"""

from __future__ import annotations

import math

import torch
from lightning import Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason

from protometry.callbacks.trainer_parts import callbacks_of

ENDS_A_PHASE = (EarlyStoppingReason.PATIENCE_EXHAUSTED, EarlyStoppingReason.STOPPING_THRESHOLD)


def phase_is_over(trainer: Trainer) -> bool:
    """Whether early stopping asks the trainer to stop because a score no longer improves or is good enough.

    All processes agree, since each judges by its own value of a score.
    """
    if not trainer.should_stop:
        return False
    over = any(stopper.stopping_reason in ENDS_A_PHASE for stopper in callbacks_of(trainer, EarlyStopping))
    return trainer.strategy.reduce_boolean_decision(over, all=False)


def start_over(trainer: Trainer) -> None:
    """Forget the scores of the phase before."""
    for stopper in callbacks_of(trainer, EarlyStopping):
        stopper.wait_count, stopper.stopped_epoch = 0, 0
        stopper.best_score = torch.tensor(math.inf if stopper.mode == "min" else -math.inf)
        stopper.stopping_reason, stopper.stopping_reason_message = EarlyStoppingReason.NOT_STOPPED, None
