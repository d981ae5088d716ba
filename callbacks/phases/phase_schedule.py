"""The schedule that walks a phase plan inside one ``fit``, through resumes and over several processes.

At a phase boundary the parameters are frozen or unfrozen, the DDP wrapper is rebuilt (a wrapper built while a group was
frozen never reduces its gradients) and the optimiser is built from the plan. Everything random in a step is seeded from
(seed, step, rank), so that a resumed run repeats the interrupted one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch import Tensor, distributed

from protometry.callbacks.phases.action_words import log_line
from protometry.callbacks.phases.concepts import fit_concepts
from protometry.callbacks.phases.early_stopping import phase_is_over, start_over
from protometry.callbacks.phases.features import keep_features
from protometry.callbacks.phases.head import calibrate, fit_head, refuse_unsolvable
from protometry.callbacks.phases.percentiles import concept_percentiles
from protometry.callbacks.phases.projection import project
from protometry.callbacks.phases.pruning import ignore_silent, prune, prune_units
from protometry.callbacks.phases.ranks import assert_equal_over_ranks, broadcast_buffers
from protometry.callbacks.phases.scores import keep_scores
from protometry.callbacks.phases.selection import select_features
from protometry.callbacks.phases.starting_patches import (
    recurring_patches,
    sample_patches,
    spread_patches,
    typical_patches,
)
from protometry.callbacks.phases.words import similarities_to_words
from protometry.callbacks.trainer_parts import callbacks_of, datamodule_of, model_of
from protometry.lightning_modules.bases.interpretable import InterpretableModule
from protometry.lightning_modules.phases import FIT_HEAD, Phase, PhasePlan

Action = Callable[[Trainer, LightningModule], dict[str, float] | None]  # its figures; None if it did nothing
ACTIONS: dict[str, Action] = {
    "sample_patches": sample_patches,
    "spread_patches": spread_patches,
    "typical_patches": typical_patches,
    "recurring_patches": recurring_patches,
    "project": project,
    "project_distinct": partial(project, distinct=True),
    "prune": prune,
    "ignore_silent": ignore_silent,
    "prune_units": prune_units,
    "concept_percentiles": concept_percentiles,
    "fit_concepts": fit_concepts,
    FIT_HEAD: fit_head,
    "calibrate": calibrate,
    "select_features": select_features,
}


@runtime_checkable
class ActionListener(Protocol):
    """A callback that is notified when an action of the plan has changed the model."""

    def on_action_end(self, trainer: Trainer, module: LightningModule, action: str, report: dict[str, float]) -> None:
        """Called on all ranks after ``action``; ``report`` holds its figures."""
        ...


class PhaseSchedule(Callback):
    """Walks the phase plan; must be the first callback of the trainer.

    Where the trainer has an ``EarlyStopping``, it ends the phase under way instead of the run, and starts over with
    every phase; see :mod:`protometry.callbacks.phases.early_stopping`.

    Args:
        seed: seed of everything random in a training step (linked to ``seed_everything``).

    Raises:
        ValueError: at set-up, if the callback is not first, the plan uses unknown names, ``max_epochs`` exceeds the
            plan, the strategy is neither single-device nor DDP, or the data of processes differ.
        RuntimeError: if the processes' parameters differ after a switch, or the loss is not finite.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.index = 0
        self.entered = False
        self.parked: dict[str, dict[str, Any]] = {}
        self.ended: dict[int, int] = {}
        self._keeping: int | None = None  # the phase for which features of the backbone are kept, if it has any
        self._previous: tuple[Tensor, torch.Event | None, list[str], int] | None = None
        self._module: InterpretableModule | None = None
        self._trainer: Trainer | None = None

    # -- set-up and resume -------------------------------------------------------------------------------------------
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Check the plan and freeze what the first phase freezes, before the model is wrapped."""
        if stage != "fit":
            return
        plan = model_of(pl_module).phases()
        module = cast(InterpretableModule, pl_module)
        first = callbacks_of(trainer, Callback)[0]
        if first is not self:
            raise ValueError(f"Expected PhaseSchedule to be the first callback, but got {type(first).__name__} first.")
        if type(trainer.strategy) not in (DDPStrategy, SingleDeviceStrategy):  # DeepSpeed's is a subclass of DDP's
            raise ValueError(
                "Expected `trainer.strategy` to be a single device or ddp, but got "
                f"{type(trainer.strategy).__name__}; switching phases is not verified under it."
            )
        if not trainer.limit_train_batches:
            raise ValueError("Expected `trainer.limit_train_batches` to leave a batch to train on, but got 0.")
        groups = model_of(pl_module).parameter_groups()
        steps = {"steps_per_epoch": module.steps_per_epoch()} if plan.steps_per_batch else {}
        plan.check(groups, module.loss_terms(), [*ACTIONS, *module.actions], **steps)
        refuse_unsolvable(plan, pl_module)
        similarities_to_words(trainer, pl_module)  # refuses a file that lacks something
        loop = trainer.fit_loop
        if loop.max_epochs in (None, -1):
            loop.max_epochs = plan.total_epochs
        elif not 1 <= loop.max_epochs <= plan.total_epochs:
            raise ValueError(
                f"Expected `trainer.max_epochs` to be at most the {plan.total_epochs} epochs of the phase plan, but "
                f"got {loop.max_epochs} (1 is the least). Pass -1, or change the plan with "
                "`model.init_args.phases`."
            )
        elif loop.max_epochs < plan.total_epochs and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            left = [phase.name for phase in plan.phases[plan.locate(loop.max_epochs - 1)[0] + 1 :]]
            rank_zero_warn(
                f"`max_epochs` {loop.max_epochs} ends the schedule of {plan.total_epochs} epochs early"
                + (f", without the phases {', '.join(left)}" if left else "")
                + ". Pass -1 for all of it."
            )
        if distributed.is_initialized():
            datamodule_of(trainer).check_processes("projection", "val")
        self._module, self._trainer = module, trainer
        module.enter_phase(self.index)

    def state_dict(self) -> dict[str, Any]:
        """Where the plan is, the phases that ended early and the optimisers parked for later phases."""
        return {"index": self.index, "entered": self.entered, "parked": self.parked, "ended": self.ended}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Called before the model is wrapped and the optimisers are configured.

        Raises:
            ValueError: if the plan of the checkpoint had more phases.
        """
        self.index, self.entered = state_dict["index"], state_dict["entered"]
        self.parked, self.ended = state_dict["parked"], dict(state_dict.get("ended", {}))
        if self._module is not None:
            phases = [phase.name for phase in model_of(self._module).phases().phases]
            if self.index >= len(phases):
                raise ValueError(
                    f"Expected the phases of the checkpoint, which is in phase {self.index + 1}, but the plan has only "
                    f"{', '.join(phases)}. Leave the phases as they were, or start from its weights with "
                    "`--model.init_from`."
                )
            self._shorten()
            self._module.enter_phase(self.index)

    def _shorten(self) -> None:
        """Shorten the phases that ended early, and the run with them."""
        module, loop = cast(InterpretableModule, self._module), cast(Trainer, self._trainer).fit_loop
        for index, epochs in self.ended.items():
            module.end_phase(index, epochs)
        loop.max_epochs = min(cast(int, loop.max_epochs), model_of(module).phases().total_epochs)

    # -- walking -----------------------------------------------------------------------------------------------------
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Move on if the plan does, and mark the phase in the logs."""
        index, epoch = model_of(pl_module).phases().locate(trainer.current_epoch)
        if begins := index != self.index or not self.entered:
            self._switch(trainer, pl_module, index)
        self._keep_features(trainer, pl_module, index)
        cast(InterpretableModule, pl_module).apply_modes()
        keep_scores(trainer, pl_module, model_of(pl_module).phases().phases[index].epochs - epoch, begins=begins)
        pl_module.log("phase", float(index), rank_zero_only=True)

    def _switch(self, trainer: Trainer, module: LightningModule, index: int) -> None:
        plan = model_of(module).phases()
        if index != self.index:
            self._park(trainer, plan)
        broadcast_buffers(module)
        self._keep_features(trainer, module, index)
        self._run(plan.phases[index].on_enter, trainer, module, trainer.global_step)
        assert_equal_over_ranks(module, plan.phases[index].name)  # before the wrap, which would copy rank 0's over
        self.index, self.entered = index, True
        cast(InterpretableModule, module).enter_phase(index)
        if isinstance(trainer.strategy, DDPStrategy):
            trainer.strategy.model = module
            trainer.strategy.configure_ddp()
        trainer.strategy.setup_optimizers(trainer)
        self._unpark(trainer, plan.phases[index])
        start_over(trainer)

    def _keep_features(self, trainer: Trainer, module: LightningModule, index: int) -> None:
        """Once per phase, and again after a resume."""
        if self._keeping != index:
            cast(InterpretableModule, module).enter_phase(index)
            keep_features(trainer, module)
            self._keeping = index

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the backbone compute again, for images that are no longer those of training."""
        cast(InterpretableModule, pl_module).backbone.kept = None

    def _park(self, trainer: Trainer, plan: PhasePlan) -> None:
        """Keep the optimiser of the phase that ends, if a later phase shares its key."""
        key = plan.phases[self.index].optimizer.key
        self.parked = {k: v for k, v in self.parked.items() if k != key}
        if key is not None and any(p.optimizer.key == key for p in plan.phases[self.index + 1 :]):
            schedulers = [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs]
            self.parked[key] = {"optimizer": trainer.optimizers[0].state_dict(), "schedulers": schedulers}

    def _unpark(self, trainer: Trainer, phase: Phase) -> None:
        if (state := self.parked.pop(phase.optimizer.key or "", None)) is None:
            return
        optimizer, before = trainer.optimizers[0], state["optimizer"]
        earlier = {group["name"]: group["params"] for group in before["param_groups"]}
        if earlier.keys() == phase.trainable.keys():
            optimizer.load_state_dict(before)
            for config, scheduler in zip(trainer.lr_scheduler_configs, state["schedulers"], strict=True):
                config.scheduler.load_state_dict(scheduler)
            return
        now = optimizer.state_dict()  # more groups: the earlier ones keep their moments
        for group in now["param_groups"]:
            pairs = zip(group["params"], earlier.get(group["name"], ()), strict=False)
            now["state"] |= {index: before["state"][old] for index, old in pairs if old in before["state"]}
        optimizer.load_state_dict(now)

    def _run(self, actions: tuple[str, ...], trainer: Trainer, module: LightningModule, step: int) -> None:
        """Run actions and log their figures at ``step``, which a resume keeps or repeats together with them."""
        for name in actions:
            action = ACTIONS.get(name)
            report = action(trainer, module) if action else getattr(module, name)(trainer) or {}
            if report is None:
                continue
            rank_zero_info(log_line(name, report, trainer.current_epoch + 1))
            for logger in trainer.loggers:
                logger.log_metrics({f"{name}/{key}": value for key, value in report.items()}, step)
            for callback in callbacks_of(trainer, Callback):
                if isinstance(callback, ActionListener):
                    callback.on_action_end(trainer, module, name, report)

    # -- steps -------------------------------------------------------------------------------------------------------
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Seed all generators from (seed, step, rank)."""
        state = np.random.SeedSequence((self.seed, trainer.global_step, trainer.global_rank)).generate_state(2)
        torch.manual_seed(int(state[0]))
        random.seed(int(state[0]))
        np.random.seed(int(state[1]))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Check the loss of the batch before, and run the exit actions after the last batch of a phase."""
        self._check_loss(trainer, pl_module)
        self._previous = (*_copied(outputs["loss"].detach()), list(batch["sample_id"]), trainer.global_step)
        if trainer.is_last_batch:
            self._check_loss(trainer, pl_module)
            plan = model_of(pl_module).phases()
            index, epoch = plan.locate(trainer.current_epoch)
            if epoch == plan.phases[index].epochs - 1 and plan.phases[index].on_exit:
                self._exit(trainer, pl_module, plan.phases[index])

    def _exit(self, trainer: Trainer, module: LightningModule, phase: Phase) -> None:
        broadcast_buffers(module)
        self._run(phase.on_exit, trainer, module, trainer.global_step - 1)
        cast(InterpretableModule, module).apply_modes()

    def end_early(self, trainer: Trainer, module: LightningModule) -> None:
        """End the phase under way if early stopping asks for it; called once per epoch, before it is saved.

        Exit actions are run, and the next phase starts as if this one had ended on schedule. A stop for another reason,
        such as a limit of time or a loss that is not finite, still ends the run.
        """
        if not phase_is_over(trainer):
            return
        plan = model_of(module).phases()
        index, epoch = plan.locate(trainer.current_epoch)
        phase = plan.phases[index]
        trainer.should_stop = False
        if epoch + 1 == phase.epochs and trainer.is_last_batch:
            return  # it is over anyway
        rank_zero_info(f"Early stopping ended phase {phase.name!r} after {epoch + 1} of {phase.epochs} epochs.")
        self.ended[index] = epoch + 1
        self._shorten()
        if phase.on_exit:
            self._exit(trainer, module, phase)

    def _check_loss(self, trainer: Trainer, module: LightningModule) -> None:
        """Stop on a loss that is not finite; read one step late, when the next one is queued on the device already."""
        if self._previous is None:
            return
        loss, copied, sample_ids, step = self._previous
        self._previous = None
        if copied is not None:
            copied.synchronize()
        if not torch.isfinite(loss):
            phase = model_of(module).phases().phases[self.index].name
            raise RuntimeError(
                f"Expected a finite loss, but the loss is {loss.item()} in phase {phase!r} at step {step}, epoch "
                f"{trainer.current_epoch + 1}; sample ids of the batch: {', '.join(sample_ids)}. Lower the learning "
                "rates of the phase (`model.init_args.phases`) or clip gradients (`trainer.gradient_clip_val`)."
            )


def _copied(loss: Tensor) -> tuple[Tensor, torch.Event | None]:
    """The loss on its way to the host, and the event of its arrival; reading the loss itself would empty the queue."""
    if loss.device.type == "cpu":
        return loss, None
    host, event = loss.to("cpu", non_blocking=True), torch.Event(loss.device)
    event.record()
    return host, event
