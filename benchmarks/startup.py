"""CPU time until a command has answered, of several checkouts in turn; the table in ``docs/performance.md``.

    python benchmarks/startup.py
    git worktree add ../earlier COMMIT
    python benchmarks/startup.py ../earlier .
    python benchmarks/startup.py --run runs/quickstart  # evaluate it, write its pages and explain an image, in a copy

Printed are user and system seconds: the least of some repeats, since other work on a machine only adds to them.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

COMMANDS = """
train.py --help
train.py fit --config missing.yaml
train.py fit --config configs/quickstart.yaml --ckpt_path missing
train.py fit --confg configs/quickstart.yaml
evaluate.py run --help
evaluate.py run --ckpt_path missing
evaluate.py table missing
evaluate.py explain
-m sweeps --help
-m sweeps run missing.yaml
-m studies --help
-m studies analyse missing
-m studies build --help
-m metrics --help
"""
OF_A_RUN = """
-c 'import lightning'
evaluate.py run --ckpt_path CKPT --report false --overwrite true
evaluate.py report --ckpt_path CKPT
evaluate.py explain --ckpt_path CKPT --sample test/00003
"""


def cpu_seconds(command: Sequence[str], checkout: Path, check: bool) -> float:
    """User and system seconds of a command.

    Raises:
        subprocess.CalledProcessError: if it must succeed and does not.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    stderr = None if check else subprocess.DEVNULL
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(checkout.resolve())}
    subprocess.run(
        [sys.executable, *command], cwd=checkout, env=environment, stdout=subprocess.DEVNULL, stderr=stderr, check=check
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, nargs="*", default=[Path(__file__).parents[1]])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--run", type=Path, help="folder of a run with best.ckpt, evaluated before")
    given = parser.parse_args()
    print("| command | " + " | ".join(f"{checkout}, CPU s" for checkout in given.checkouts) + " |")
    print("|---" * (1 + len(given.checkouts)) + "|")
    with tempfile.TemporaryDirectory() as scratch:
        if given.run:
            shutil.copytree(given.run, Path(scratch) / "run")
        for command in (OF_A_RUN if given.run else COMMANDS).strip().splitlines():
            words = shlex.split(command.replace("CKPT", f"{scratch}/run/checkpoints/best.ckpt"))
            rounds = [
                [cpu_seconds(words, each, check=given.run is not None) for each in given.checkouts]
                for _ in range(given.repeats)
            ]
            least = " | ".join(f"{min(times):.2f}" for times in zip(*rounds, strict=True))
            print(f"| `{command}` | {least} |", flush=True)


if __name__ == "__main__":
    main()
