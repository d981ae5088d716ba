"""Speed and scale, row by row, next to a floor and to an earlier checkout: measured in turn, with peak memory.

    python benchmarks/rows.py                                # this checkout
    git worktree add ../earlier COMMIT
    python benchmarks/rows.py --earlier ../earlier           # both, every measurement in turn
    python benchmarks/rows.py --rows head projection

Times are CPU time of one thread, the median with the least and the most, after one call to warm up. Memory is what a
second call in a process of its own holds at most above what the process holds after it, with freed memory returned at
once. The floor is work that the row cannot avoid: counted passes, the backbone alone, or the formula of the released
code. An earlier checkout has ``protometry`` for its package, and what ``benchmarks/works.py`` imports.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from threading import Timer
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))  # behind PYTHONPATH, the checkout that is measured

from timing import ROOT, WITHOUT_CACHE, cpu_ms, peak, show
from works import ROWS

from protometry.run_folder.command_line.freed_memory import keep_freed_memory


def serve(row: str, part: str) -> None:
    """Measure a row each time a line asks for ``time`` or ``peak``."""
    torch.set_num_threads(1)
    keep_freed_memory()  # as the command line does
    chosen = ROWS[row]
    work = chosen.floor[1]() if part == "floor" and chosen.floor else chosen.work()
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(cpu_ms(work) if line.strip() == "time" else peak(work), file=answers, flush=True)


class Server:
    """A process that measures one row; asked too long, it is ended and answers None from then on."""

    def __init__(self, row: str, part: str, checkout: Path, limit: float, **environment: str) -> None:
        command = [sys.executable, __file__, "--serve", row, part]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        options: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors, "text": True}
        environment |= {"PYTHONPATH": str(checkout)}
        self.process: Any = subprocess.Popen(command, cwd=checkout, env=os.environ | environment, **options)
        self.limit = limit

    def ask(self, what: str) -> float | None:
        """Milliseconds for ``time``, MiB for ``peak``, or None.

        Raises:
            RuntimeError: if the process failed, with the last line it wrote.
        """
        timer = Timer(self.limit, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(f"{what}\n")
            self.process.stdin.flush()
            return float(self.process.stdout.readline())
        except (BrokenPipeError, ValueError):
            if self.process.wait() == -signal.SIGKILL:
                return None
            self.errors.seek(0)
            last = self.errors.read().strip().rpartition("\n")[2]
            raise RuntimeError(f"{' '.join(self.process.args)} failed: {last}") from None
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        self.errors.close()


def measured(row: str, sides: dict[str, tuple[str, Path]], repeats: int, limit: float) -> dict[str, str]:
    """Side -> time and peak memory of a row, as text."""
    with ExitStack() as stack:
        servers = {side: Server(row, *where, limit) for side, where in sides.items()}
        for server in servers.values():
            stack.callback(server.close)
        rounds = [{side: server.ask("time") for side, server in servers.items()} for _ in range(repeats + 1)][1:]
    columns = {}
    for side, where in sides.items():
        times = [each[side] for each in rounds]
        whole = [time for time in times if time is not None]
        server = Server(row, *where, limit, **WITHOUT_CACHE)
        memory = server.ask("peak") if whole else None
        server.close()
        time = show(whole, ROWS[row].images) if len(whole) == repeats else f"> {1e3 * limit / ROWS[row].images:,.0f}"
        columns[side] = f"{time} | {'–' if memory is None else f'{memory:.0f}'}"
    return columns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS, help="what to measure")
    parser.add_argument("--earlier", type=Path, help="another checkout of this project")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=120, help="seconds that one measurement may take")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(*arguments.serve)
        return
    checkouts = ({"earlier": arguments.earlier.resolve()} if arguments.earlier else {}) | {"this": ROOT}
    heads = [f"{name}, ms / image | peak, MiB" for name in checkouts]
    print(f"| row | {' | '.join(heads)} | floor, ms / image | of |\n|{'---|' * (2 * len(heads) + 3)}")
    for row in arguments.rows:
        sides = {name: ("work", path) for name, path in checkouts.items()}
        if floor := ROWS[row].floor:
            sides["floor"] = ("floor", ROOT)
        columns = measured(row, sides, arguments.repeats, arguments.limit)
        lowest = f"{columns['floor'].split(' | ')[0]} | {floor[0]}" if floor else "– | –"
        print(f"| {ROWS[row].title} | {' | '.join(columns[name] for name in checkouts)} | {lowest} |", flush=True)


if __name__ == "__main__":
    main()
