"""Exit codes and one-line errors of the command lines."""

from __future__ import annotations

import sys
from collections.abc import Callable

from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.exceptions import SIGTERMException


def from_shell(command: Callable[[], object]) -> None:
    """Run a command line, with exit codes: 2 after one line for a mistake of the user, 143 if ended by SIGTERM.

    Args:
        command: parses ``sys.argv`` and works; the texts of its errors that need no traceback start with "Expected".
    """
    try:
        command()
    except SIGTERMException:
        rank_zero_info("Stopped by SIGTERM; a training run goes on from its last epoch with `--ckpt_path last`.")
        sys.exit(143)
    except (ValueError, TypeError, FileNotFoundError, FileExistsError) as error:
        found: BaseException | None = error  # the parser wraps what a constructor raises
        while found is not None and not str(found).startswith("Expected"):
            found = found.__cause__
        if found is None:
            raise
        print(f"error: {found}", file=sys.stderr)
        sys.exit(2)
