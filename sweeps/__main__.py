"""Train and evaluate many runs from one file.

``protometry sweeps run configs/sweep/sketch_birds.yaml --jobs 2``
``protometry sweeps slurm configs/sweep/sketch_birds.yaml > array.sh``
``protometry sweeps tune configs/sweep/tune_protopnet_cub200.yaml --flags "--data.root DIR"``
``protometry sweeps wandb configs/sweep/sketch_birds.yaml > sweep.yaml``
"""

from __future__ import annotations

from typing import Any

from jsonargparse import auto_cli

from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.parser import StrictParser
from protometry.sweeps.cluster import slurm, wandb
from protometry.sweeps.run import run
from protometry.sweeps.tune import tune

COMMANDS: Any = {command.__name__: command for command in (run, tune, slurm, wandb)}


class CommandLine(StrictParser):
    """The file of a sweep needs no flag, and ``--dry_run`` no value."""

    def add_function_arguments(self, function: Any, *args: Any, **options: Any) -> list[str]:
        """Add the arguments of a command."""
        if function is run:
            about = "print the commands that would be run, and do nothing"
            self.add_argument("--dry_run", action="store_true", help=about)
            options["skip"] = {*options.get("skip", ()), "dry_run"}
        options["as_positional"] = True
        added: list[str] = super().add_function_arguments(function, *args, **options)
        return added


def main(args: list[str] | None = None) -> None:
    """Run the command line, from the shell or in process."""
    auto_cli(COMMANDS, args=args, parser_class=CommandLine, prog="protometry sweeps")


if __name__ == "__main__":
    from_shell(main)
