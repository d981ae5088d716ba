"""A human study from a trained model: built, answered by simulated people, analysed.

    python examples/human_study.py runs/quickstart/checkpoints/last.ckpt OUT

With `protometry studies serve OUT/study`, people answer the same pages.
"""

import sys
from pathlib import Path

from protometry.studies.analysis.analyse import analyse
from protometry.studies.construction.build import build
from protometry.studies.construction.method import Method
from protometry.studies.simulation.observer import SimulatedParticipant
from protometry.studies.simulation.simulate import simulate
from protometry.studies.study import Assignment

checkpoint, out = Path(sys.argv[1]), Path(sys.argv[2])
out.mkdir(parents=True, exist_ok=True)
consent = out / "consent.md"
consent.write_text("A trial. You judge decisions of a program. You may stop at any time; nothing is paid.\n", "utf-8")

bundle = build(
    out / "study",
    id="trial",
    title="Is the program right?",
    task="distinction",  # which of four classes is right?
    arms=[Method("prototypes", checkpoint, "units", labels=True), Method("photos", checkpoint, "none", labels=True)],
    assignment=Assignment(people=8, right=4, wrong=0),
    items=8,
    consent=consent,
)
answers = out / "answers.sqlite"
people = simulate(bundle.folder, answers, SimulatedParticipant("noisy", d_prime=1.0), 16)
summary = analyse(bundle.folder, answers, out / "analysis")
print(f"{people} simulated people took part")
for arm, results in summary["results"]["all"].items():
    total = results["study/distinction_total"]
    print(f"{arm:<22} {100 * total['value']:6.1f} %  95 % interval {[round(100 * x, 1) for x in total['interval']]}")
print(f"In words and pictures: {out / 'analysis/index.html'}")
