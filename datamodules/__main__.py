"""Verify a data root: ``protometry datamodules check --data protometry.datamodules.Cub200 --data.root DIR``."""

from __future__ import annotations

from typing import Any

import yaml
from jsonargparse import ArgumentParser, Namespace, get_loader

from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.check.check import check_data
from protometry.datamodules.check.report import new_folder, show_check, write_check
from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.parser import StrictParser


def main(args: list[str] | None = None) -> None:
    """Run the command line, from the shell or in process.

    Raises:
        ValueError: if data or arguments are wrong.
        OSError: if something is missing, or a folder cannot be made.
    """
    parser = StrictParser(prog="protometry datamodules", description="Verify data sets.")
    commands = parser.add_subcommands(required=True)
    commands.add_subcommand("check", _check_parser(), help="verify a data root")
    config = parser.parse_args(args)
    if config.check.limit is not None and config.check.limit < 1:
        raise ValueError(f"Expected argument `limit` to be at least 1, but got {config.check.limit}.")
    instantiate = getattr(parser, "instantiate", None) or parser.instantiate_classes  # named so until 4.48
    _check(instantiate(config).check)


class _CheckParser(StrictParser):
    """Takes every config that ``train.py fit`` takes, and of one with the key ``data`` nothing about model and run."""

    def parse_string(self, content: str, *args: Any, **options: Any) -> Namespace:
        """Parse the text of a config."""
        settings = get_loader("yaml")(content)
        if isinstance(settings, dict) and "data" in settings:
            content = yaml.safe_dump({key: settings[key] for key in ("data", "limit", "out") if key in settings})
        config: Namespace = super().parse_string(content, *args, **options)
        return config


def _check_parser() -> ArgumentParser:
    parser = _CheckParser(description="Check every file, table, split and sample; write a report with pictures.")
    parser.add_argument("--config", action="config", help="yaml with the key `data`, such as the config of a run")
    parser.add_subclass_arguments(ImageDataModule, "data", required=True, help="data module and its arguments")
    parser.add_argument("--limit", type=int | None, default=None, help="check only this many samples per split")
    parser.add_argument("--out", type=str | None, default=None, help="new folder; runs/check/<data set> by default")
    return parser


def _check(config: Namespace) -> None:
    folder = new_folder(config.out, config.data)
    try:
        check = check_data(config.data, config.limit)
    except (ValueError, OSError):
        folder.rmdir()  # nothing was written into it
        raise
    write_check(check, folder)
    print(f"{show_check(check)}\n\n{folder / 'check.json'}, {folder / 'contact_sheet.png'}")


if __name__ == "__main__":
    from_shell(main)
