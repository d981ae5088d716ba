"""A study as one file per participant, for rooms without a network."""

from __future__ import annotations

from pathlib import Path

from protometry.run_folder.command_line.messages import counted
from protometry.studies.bundle import Bundle, load_bundle
from protometry.studies.participants import Participant, steps_of
from protometry.studies.server.pages import Pages
from protometry.studies.store import Store

SCHEMA = 1  # of saved answers


def command(folder: Path, out: Path | None = None, number: int = 50) -> str:
    """Write a study as files that need no server, one per participant.

    Args:
        folder: the bundle.
        out: new folder; ``files`` in the bundle if None.
        number: of participants.
    """
    out = out or folder / "files"
    bundle = load_bundle(folder)
    files = write_files(bundle, out, number)
    size = max(file.stat().st_size for file in files) / 2**20
    written = f"{counted(len(files), 'file')} of up to {size:.1f} MiB, one per participant, are in {out}"
    unfilled = bundle.placeholders()
    return f"{written}\nGive them to nobody yet: {unfilled}." if unfilled else written


def write_files(bundle: Bundle, out: Path, number: int) -> list[Path]:
    """Write ``participant-001.html`` and so on: what the server would show to people who come at once.

    The files do not hold the key, so there is no page with the participant's own result.

    Raises:
        ValueError: if the number is below 1, the folder is not empty, or the study has fewer places.
    """
    if number < 1:
        raise ValueError(f"Expected argument `number` to be at least 1, but got {number}.")
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty: give a new folder.")
    people = first_participants(bundle, number)
    pages, files = Pages(bundle), []
    out.mkdir(parents=True, exist_ok=True)
    for who in people:
        facts = {"schema": SCHEMA, "study": bundle.study.id, "hash": bundle.hash, "number": who.number}
        files.append(out / f"participant-{who.number:03}.html")
        files[-1].write_text(pages.single(steps_of(bundle.study, who), facts), "utf-8")
    return files


def first_participants(bundle: Bundle, number: int) -> list[Participant]:
    """The first participants of a study, as the server would place them.

    Raises:
        ValueError: if there are fewer places.
    """
    store = Store(Path(":memory:"), bundle)
    try:
        people = [who for _ in range(number) if (who := store.join()) is not None]
    finally:
        store.close()
    if len(people) < number:
        placed = counted(len(people), "participant")
        raise ValueError(f"The study {bundle.study.id} has places for {placed}, not for {number}.")
    return people
