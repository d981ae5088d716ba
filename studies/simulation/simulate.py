"""Simulated participants take part in a study: their answers go straight into its database."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex

from protometry.studies.bundle import load_bundle
from protometry.studies.participants import SIMULATED, Participant, steps_of
from protometry.studies.simulation.observer import SimulatedParticipant
from protometry.studies.store import Store, open_store

GUESSER = SimulatedParticipant()


def simulate(folder: Path, database: Path, observer: SimulatedParticipant, number: int) -> int:
    """Let simulated participants answer a whole study.

    Takes the arguments of :func:`command`.

    Returns:
        How many took part: fewer where places run out.

    Raises:
        ValueError: if the number is below 1, the bundle is broken, or the database is of another study or being served.
    """
    if number < 1:
        raise ValueError(f"Expected argument `number` to be at least 1, but got {number}.")
    with open_store(database, load_bundle(folder)) as store:
        for done in range(number):
            person = None if store.bundle.study.platform.kind == "local" else token_hex(8)
            who = store.join(person, agent=f"{SIMULATED}{observer.policy}")
            if who is None:
                return done
            answer_all(store, who, observer)
    return number


def command(
    folder: Path, number: int = 50, observer: SimulatedParticipant = GUESSER, database: Path | None = None
) -> str:
    """Let simulated participants answer a whole study, and say where their answers are.

    Args:
        folder: the bundle.
        number: how many.
        observer: who answers.
        database: new, or of this study; ``simulated.sqlite`` in the bundle if None.
    """
    file = database or folder / "simulated.sqlite"
    return f"{simulate(folder, file, observer, number)} took part; their answers are in {file}"


def answer_all(store: Store, who: Participant, observer: SimulatedParticipant) -> None:
    """Answer page by page to the end, or to where the observer leaves."""
    study, key = store.bundle.study, store.bundle.key
    way = steps_of(study, who)
    client: dict[str, object] = {"javascript": True, "focus_losses": 0, "pictures_missing": False}
    current: Participant | None = who
    while current is not None and current.status == "active" and current.step != observer.leave_at:
        step = way[current.step]
        store.open_page(current, step.page)
        answers = observer.respond(study, step, key.items[step.item.id] if step.item else None, who.seed)
        store.submit(current, way, current.step, answers, client)
        current = store.find(who.id)
