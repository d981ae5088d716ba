"""Train any model on any data set: ``python train.py fit --config configs/quickstart.yaml``."""

from __future__ import annotations

from protometry.run_folder.command_line.first_look import check_checkpoint, look_at_names

COMMANDS = {
    "fit": "train a model, with an evaluation after every epoch",
    "validate": "evaluate a checkpoint on the validation split",
    "test": "evaluate a checkpoint on the test split",
    "convert": "make a run of weights that the authors' code of a model has saved",
}
if __name__ == "__main__":
    look_at_names(COMMANDS)  # before the imports below, which take seconds

import sys
from contextlib import ExitStack
from inspect import signature
from pathlib import Path
from pydoc import locate
from typing import Any, NoReturn, TypeVar, cast

import yaml
from lightning import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint, ProgressBar, Timer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI

from protometry import callbacks
from protometry.callbacks.evaluation.interpretability import SEEDS
from protometry.callbacks.run.loggers import place_loggers
from protometry.callbacks.run.summary import RunSummary, evaluate_command
from protometry.callbacks.run.training_curves import StepCurves, TrainingCurves
from protometry.datamodules.base import ImageDataModule
from protometry.evaluation.evaluate import after_fit
from protometry.lightning_modules import InterpretableModule, load_released
from protometry.lightning_modules.backbones import BackboneOptions
from protometry.lightning_modules.phases import PhaseOverride
from protometry.run_folder.checkpoint_file import REMEDY, read_checkpoint
from protometry.run_folder.checkpoint_schema import Resumable
from protometry.run_folder.command_line.ending import from_shell, trainer_settings
from protometry.run_folder.command_line.messages import program
from protometry.run_folder.command_line.parser import StrictParser
from protometry.run_folder.command_line.processes import EndTogether
from protometry.run_folder.command_line.stop_signals import SIGNALS
from protometry.run_folder.command_line.stopping import stop_together
from protometry.run_folder.command_line.user_path import shown
from protometry.run_folder.folder import (
    LINKED_MODEL_ARGUMENTS,
    SaveConfig,
    belongs_to,
    check_unchanged,
    resume_path,
)
from protometry.run_folder.free_folder import check_free, is_complete, may_be_queued
from protometry.run_folder.layout import EVALUATION, LAST, REPORT, check_name, run_name
from protometry.run_folder.lock import only_process
from protometry.run_folder.schema import check_content
from protometry.run_folder.slurm import RequeuedTrainer

ALWAYS = {
    "schedule": callbacks.PhaseSchedule,
    "evaluation": callbacks.Interpretability,
    "media": callbacks.PrototypeMedia,
    "explanations": callbacks.ExplanationMedia,
    "progress": callbacks.PhaseProgressBar,
    "checkpoint": callbacks.RunCheckpoint,
}
DEFAULTS = {
    "max_epochs": -1,  # the phase plan says how many
    "num_sanity_val_steps": 0,
    "enable_model_summary": False,  # ours says more
    "logger": [{"class_path": "RunCSVLogger"}, {"class_path": "RunWandbLogger"}],
}
PRECISIONS = ("32", "32-true", "16", "16-mixed", "bf16", "bf16-mixed")  # scores and heads compute in 32 bits
LEAST = {  # of settings that Lightning does not check
    "seed_everything": 0,
    "trainer.accumulate_grad_batches": 1,
    "trainer.check_val_every_n_epoch": 1,
    "trainer.gradient_clip_val": 0,
    "trainer.log_every_n_steps": 0,
    "trainer.min_epochs": 0,
    "trainer.min_steps": 0,
    "trainer.num_nodes": 1,
    "trainer.num_sanity_val_steps": -1,
    "trainer.reload_dataloaders_every_n_epochs": 0,
}


class RunTrainer(RequeuedTrainer):
    """A trainer that can also turn weights trained elsewhere into a run."""

    def convert(self, model: InterpretableModule, datamodule: ImageDataModule, state_dict: str) -> None:
        """Turn weights saved by the authors' code of a model into a run; nothing is trained.

        Args:
            model: filled with the weights.
            datamodule: what they were trained on.
            state_dict: the file, with tensors by the names of the authors' code.
        """
        released = load_released(model, state_dict)
        datamodule.prepare_data()
        self.datamodule = datamodule
        self.strategy.connect(model)
        content = self._checkpoint_connector.dump_checkpoint(weights_only=True)
        content |= {"callbacks": {}, "released": released | {"class_names": list(datamodule.class_names)}}
        file = Path(self.default_root_dir) / LAST
        callbacks.AtomicCheckpointIO().save_checkpoint(content, file)
        for callback in self.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, SaveConfig):
                callback.save_config(self, model, "convert")
        print(f"checkpoint: {shown(file)}\nevaluate it: {program('evaluate')} run --ckpt_path {shown(file)}")


NESTED_HELP = {  # request -> flags that it is about, and what they set
    "--model.backbone.help": ("--model.backbone", BackboneOptions),
    "--model.phases.help": ("--model.phases.NAME", PhaseOverride),
}


class TrainParser(StrictParser, LightningArgumentParser):
    """The parser of a training run."""

    def parse_args(self, args: Any = None, *more: Any, **options: Any) -> Any:
        """Parse a command line, or show the help for a group of settings, which the model's class hides."""
        for request, (flag, kind) in NESTED_HELP.items():
            if request in (args or sys.argv[1:]):
                parser = StrictParser(prog="train.py fit")
                parser.add_argument(flag, type=kind)
                parser.parse_args([f"{flag}.help"])
        return super().parse_args(args, *more, **options)

    def seed_of_data(self, seed_everything: int, data: Any) -> int:
        """The seed of the run, which the data share; a different one for the data is refused."""
        if data is None:  # a config may say null, which the parser refuses later
            return seed_everything
        kinds = getattr(locate(data["class_path"]), "__mro__", ())
        arguments = (signature(kind.__init__).parameters.get("seed") for kind in kinds)
        default = next((argument.default for argument in arguments if argument), None)
        if (given := data["init_args"].get("seed")) not in (None, default, seed_everything):
            self.error(
                f"Expected `data.seed` to be left out, because it is the seed of the run, but got {given}. Pass "
                f"`--seed_everything {given}`."
            )
        return seed_everything


class TrainCLI(LightningCLI):
    """Links facts of the data to the model and gives each run a folder of its own."""

    def __init__(self, *args: Any, **options: Any) -> None:
        with ExitStack() as self.until_the_end:
            super().__init__(*args, **options)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The arguments of a run and the callbacks every run has."""
        parser.add_argument("--runs", type=str, default="runs", help="folder of all runs")
        parser.add_argument("--experiment", type=str | None, default=None, help="folder of this run below --runs")
        parser.add_argument(
            "--test_after_fit", type=bool, default=False, help="evaluate the best checkpoint and write its pages"
        )
        for key, kind in ALWAYS.items():
            parser.add_lightning_class_args(kind, key)
        parser.link_arguments("seed_everything", "schedule.seed")
        one_seed = cast(TrainParser, parser).seed_of_data
        parser.link_arguments(("seed_everything", "data"), "data.init_args.seed", compute_fn=one_seed)
        parser.link_arguments("data.num_classes", "model.init_args.num_classes", apply_on="instantiate")
        parser.link_arguments("data.num_concepts", "model.init_args.num_concepts", apply_on="instantiate")
        parser.link_arguments("data.image_size", "model.init_args.image_size", apply_on="instantiate")

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The seed must be a number: no run may go without."""
        parser.add_argument("--seed_everything", type=int, default=0, help="seed of the run")

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """All commands except predict, and one of ours."""
        commands = LightningCLI.subcommands() | {"convert": {"model", "datamodule"}}
        return {name: skipped for name, skipped in commands.items() if name in COMMANDS}

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Keep the checkpoint from Lightning, which would let its hyper-parameters override the command line."""
        super().parse_arguments(parser, args)
        _check_settings(self.config[self.config.subcommand])
        self.ckpt_path = self.config[self.config.subcommand].pop("ckpt_path", None)

    def before_instantiate_classes(self) -> None:
        """Find the run folder, refuse to mix runs, and set the folders of the loggers."""
        config = self.config[self.subcommand]
        data, model = config.data.as_dict(), config.model.as_dict()
        name = run_name(model["class_path"], data["class_path"], data["init_args"].get("fold"), config.seed_everything)
        name = check_name(name if config.experiment is None else config.experiment)
        folder = Path(config.runs).absolute() / name  # one place, whatever changes the working folder later
        fitting = self.subcommand in ("fit", "convert")
        if not fitting and self.ckpt_path is None:
            raise ValueError("Expected argument `ckpt_path` to name a checkpoint or to be `last`, but got none.")
        if fitting:
            self.until_the_end.enter_context(only_process(folder))
        path: Path | str | None = folder / LAST if self.ckpt_path == "last" else self.ckpt_path
        if self.subcommand == "fit":
            if self.ckpt_path is None and is_complete(folder) and not may_be_queued(folder):
                check_unchanged(folder / LAST, model, data)
                _end_finished(folder)
            path = resume_path(folder, self.ckpt_path)
        continued = path is not None and belongs_to(folder, path)
        if fitting and not continued:
            check_free(folder)
        checkpoint = check_unchanged(Path(path), model, data) if path else {}
        if self.subcommand == "fit" and not path and (start := model["init_args"].get("init_from")):
            check_checkpoint(start, "model.init_from")
            read_checkpoint(start, mmap=True)  # refuses what is foreign, before the data are checked
        if path and fitting:
            _refuse_released(checkpoint, path)
            check_content(Resumable, checkpoint, path, REMEDY)
        self.requested = config.clone()
        if self.subcommand != "convert":
            config.ckpt_path = str(Path(path).absolute()) if path else None
        config.trainer.default_root_dir = str(folder)
        if self.subcommand == "convert" and (backbone := model["init_args"].get("backbone")):
            config.model.init_args.backbone = {**backbone, "weights": None}  # they document where training started
        config.trainer.logger = config.trainer.logger if self.subcommand == "fit" else False
        config.trainer.logger = place_loggers(config.trainer.logger, folder, name, checkpoint if continued else {})
        self.trained_classes = checkpoint.get("hyper_parameters", {}).get("num_classes")

    def after_instantiate_classes(self) -> None:
        """Refuse data with another number of classes than the checkpoint was trained on."""
        if self.trained_classes not in (None, self.datamodule.num_classes):
            raise ValueError(
                f"Expected data with the {self.trained_classes} classes of the checkpoint, but "
                f"{type(self.datamodule).__name__} has {self.datamodule.num_classes}."
            )

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """The schedule comes first, checkpoints are written atomically, and the requested config is saved."""
        self.config[self.subcommand] = self.requested
        plugins = self.config_init[self.subcommand].trainer.plugins or []
        plugins = [*(plugins if isinstance(plugins, list) else [plugins]), callbacks.AtomicCheckpointIO()]
        with trainer_settings():
            trainer = super().instantiate_trainer(plugins=plugins, **kwargs)
        stop_together(trainer)
        self.summary = RunSummary()
        trainer.callbacks[:0] = [self.summary, StepCurves(), TrainingCurves(), EndTogether()]  # type: ignore[attr-defined]
        trainer.callbacks.sort(key=lambda callback: not isinstance(callback, callbacks.PhaseSchedule))  # type: ignore[attr-defined]
        return trainer

    def before_convert(self) -> None:
        """Record where the weights started, which was not read, and save a config that other commands accept."""
        self.model.hparams["backbone"] = self.requested.model.as_dict()["init_args"].get("backbone")
        save = next(callback for callback in self.trainer.callbacks if isinstance(callback, SaveConfig))  # type: ignore[attr-defined]
        save.parser, save.config = self._parser("fit"), self.requested.clone()
        del save.config["state_dict"]

    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list[Callback]) -> Trainer:
        """Leave out the callbacks that were switched off."""
        switches = {"enable_progress_bar": ProgressBar, "enable_checkpointing": Checkpoint}
        unwanted = tuple(kind for switch, kind in switches.items() if config[switch] is False)
        kept = [callback for callback in callbacks if not isinstance(callback, unwanted)]
        return super()._instantiate_trainer(config, kept)

    def before_fit(self) -> None:
        """From the first checkpoint on, a run that is interrupted can be resumed."""
        last, start_again = Path(self.trainer.default_root_dir) / LAST, SIGNALS.go_on
        resume = "Training continues from its last epoch with `--ckpt_path last`."
        SIGNALS.go_on = lambda: resume if last.is_file() else start_again()

    def after_fit(self) -> None:
        """Evaluate the best checkpoint and print where everything is."""
        wanted = self.config.fit.test_after_fit and not self.trainer.fast_dev_run  # type: ignore[attr-defined]
        if wanted:
            command = evaluate_command(self.trainer)
            SIGNALS.go_on = lambda: f"The training is finished. Evaluate it with `{command}`."
        self.summary.say_end(self.trainer, after_fit(self.trainer) if wanted else None)


Cli = TypeVar("Cli", bound=TrainCLI)


class SettingsReader(TrainCLI):
    """Reads the settings of trainings from their command lines, and starts nothing."""

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Nothing: command lines follow one by one."""
        self.config = {"subcommand": None}

    def read(self, arguments: list[str]) -> dict[str, Any]:
        """The content that the ``config.yaml`` of a run would have.

        Args:
            arguments: of its command line, after ``train.py``.

        Raises:
            SystemExit: from the parser, after a line that says what is wrong.
            ValueError: for settings that Lightning would accept.
        """
        command = self.parser.parse_args(arguments)
        config = command[command.subcommand]
        _check_settings(config)
        config.pop("ckpt_path", None)
        content: dict[str, Any] = yaml.safe_load(self._parser(command.subcommand).dump(config, skip_none=False))
        return content

    def _set_seed(self) -> None:
        """Nothing, and so do the steps that follow."""

    before_instantiate_classes = instantiate_classes = after_instantiate_classes = _set_seed


def _end_finished(folder: Path) -> NoReturn:
    """Say that a run with these settings is finished, which is no error."""
    page = folder / EVALUATION / REPORT / "index.html"
    print(f"{shown(folder)} holds this run, which is finished: there is nothing to train.")
    print(f"pages       {shown(page)}" if page.is_file() else f"results     {shown(folder / EVALUATION)}")
    print("another     `--experiment NAME` trains it again beside this one")
    sys.exit(0)


def _refuse_released(checkpoint: dict[str, Any], path: Path | str) -> None:
    if released := checkpoint.get("released"):
        raise ValueError(
            f"Expected {path} to be a checkpoint to resume from, but it holds weights trained with the "
            f"{released['code']}. Start another run from its backbone with `--model.backbone.weights {path}`."
        )


def _check_settings(config: Any) -> None:
    """Refuse what Lightning would accept, all at once."""
    if empty := [name for name in (*ALWAYS, "trainer") if config[name] is None]:
        raise ValueError(f"Expected `{empty[0]}` to hold settings as `key: value`, but got null. Leave the key out.")
    wrong = [
        f"`{name}` to be at least {least}, but got {config[name]}"
        for name, least in LEAST.items()
        if config[name] is not None and config[name] < least
    ]
    if config.seed_everything >= SEEDS:
        wrong.append(f"`seed_everything` to be below 2^32, but got {config.seed_everything}")
    if not config.runs.strip() or not config.runs.isprintable():
        wrong.append(f"`runs` to name a folder, but got {config.runs!r}")
    trainer = config.trainer
    if isinstance(trainer.val_check_interval, int | float) and trainer.val_check_interval <= 0:
        wrong.append(f"`trainer.val_check_interval` to be above 0, but got {trainer.val_check_interval}")
    if trainer.max_steps == 0:
        wrong.append("`trainer.max_steps` to be at least 1, or -1 for no limit, but got 0")
    if trainer.max_time is not None and (Timer(trainer.max_time).time_remaining() or 0) <= 0:
        wrong.append(f"`trainer.max_time` to be a positive time, but got {trainer.max_time}")
    if str(trainer.precision or 32) not in PRECISIONS:
        wrong.append(f"`trainer.precision` to be one of {', '.join(PRECISIONS)}, but got {trainer.precision}")
    if str(trainer.strategy).endswith(("spawn", "fork", "notebook")):
        wrong.append(f"`trainer.strategy` to start processes as `ddp` does, but got {trainer.strategy}")
    given = config.model.get("init_args") or {}
    wrong += [
        f"`model.{name}` to be left out, because it is a fact of the data, but got {given[name]}"
        for name in LINKED_MODEL_ARGUMENTS
        if given.get(name)  # 0 is the default
    ]
    if config.get("test_after_fit") and config.trainer.enable_checkpointing is False:
        wrong.append("`trainer.enable_checkpointing` to be true with `test_after_fit`, which evaluates a checkpoint")
    if wrong:
        raise ValueError(f"Expected {'; '.join(wrong)}.")


def main(args: ArgsType = None) -> TrainCLI:
    """Run the command line, from the shell or in process."""
    return _run(TrainCLI, args)


def settings_reader() -> SettingsReader:
    """What reads the settings of trainings from their command lines, and starts nothing."""
    return _run(SettingsReader)


def _run(kind: type[Cli], args: ArgsType = None) -> Cli:
    return kind(
        InterpretableModule,
        ImageDataModule,
        save_config_callback=SaveConfig,
        trainer_class=RunTrainer,
        save_config_kwargs={"save_to_log_dir": False},
        parser_class=TrainParser,
        trainer_defaults=DEFAULTS,
        subclass_mode_model=True,
        subclass_mode_data=True,
        auto_configure_optimizers=False,
        args=args,
    )


if __name__ == "__main__":
    from_shell(main)
