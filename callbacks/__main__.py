"""``python -m callbacks workspace --entity NAME``: lay out the W&B workspace of a project."""

from __future__ import annotations

from jsonargparse import auto_cli

from callbacks.run.workspace import workspace
from run_folder.command_line import StrictParser, from_shell


def main(args: list[str] | None = None) -> None:
    """Run the command line, from the shell or in process."""
    auto_cli({"workspace": workspace}, args=args, as_positional=False, parser_class=StrictParser)


if __name__ == "__main__":
    from_shell(main)
