"""Plan, build, serve, simulate and analyse human studies.

``protometry studies plan --effect 0.10 --task distinction --items 5 --icc 0.2``
``protometry studies build --config STUDY.yaml --out DIR``
``protometry studies hive --name cub_prototree_distinction --ckpt_path RUN.ckpt --consent consent.md --out DIR``
``protometry studies serve DIR``
``protometry studies simulate DIR --observer.policy noisy --observer.d_prime 0.5``
``protometry studies analyse DIR``
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from protometry.run_folder.command_line.ending import REMEDIES, from_shell
from protometry.run_folder.command_line.messages import requires, write_any_text
from protometry.run_folder.command_line.parser import StrictParser

# what each command does, and where; only the module of the asked command is imported
COMMANDS = {
    "build": ("build a study from checkpoints", "protometry.studies.construction.build"),
    "hive": ("build one of the 19 studies of HIVE from a checkpoint", "protometry.studies.construction.hive"),
    "plan": ("sample size, power, duration and cost of a study", "protometry.studies.sample_size"),
    "serve": ("serve a study to participants", "protometry.studies.server.serve"),
    "simulate": ("let simulated participants take part in a study", "protometry.studies.simulation.simulate"),
    "analyse": ("write the results of a study, and print those that are tested", "protometry.studies.analysis.analyse"),
}
EXTRA = {"starlette", "uvicorn"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        Exit status: 0, or 2 if files or arguments are wrong.
    """
    write_any_text()
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = StrictParser(prog="protometry studies", description="Human studies of explanations.")
    commands = parser.add_subcommands(required=True)
    if "single_file" in arguments[:1]:
        parser.error(
            "Instead of single_file, serve in a network of your own: `protometry studies serve DIR --host ADDRESS`."
        )
    try:
        for name, (about, module) in COMMANDS.items():
            command = StrictParser(description=f"{about[0].upper()}{about[1:]}.")
            if name == next(iter(arguments), None):
                command.add_argument("--config", action="config", help="yaml with the arguments")
                command.add_function_arguments(
                    import_module(module).command, None, as_positional=name not in ("build", "hive", "plan")
                )
            commands.add_subcommand(name, command, help=about)
        config = parser.parse_args(arguments)
        instantiate = getattr(parser, "instantiate", None) or parser.instantiate_classes  # named so until 4.48
        values = instantiate(config)[config.subcommand].as_dict()
        values.pop("config")
        print(import_module(COMMANDS[config.subcommand][1]).command(**values))
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno in REMEDIES:
            raise  # to the shell, with what to do
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        print(f"error: {requires('study', error.name)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    from_shell(lambda: sys.exit(main()))
