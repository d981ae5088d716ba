"""How long the metrics of one batch take, without a model: ``python benchmarks/metrics.py``.

Prints milliseconds per metric, the least of several repeats, for 32 images, 2,000 units with 7 x 7 maps, five units per
image and saliency of 224 x 224; the floor is 50 ms for all metrics on maps and scores, and 450 ms for all metrics on
saliency, both clips included, on two threads. The noise of completeness is measured too, with a floor of 500 ms.
Other work on the machine shows as wall time above the processor time of one thread.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import metrics as m
from metrics.functional import clip_saliency, completeness_perturbation, gather_units, top_units

CLASSES, UNITS, CHANNELS, GRID, SELECTED, SIDE = 200, 2000, 128, 7, 5, 224
FLOORS = {"maps and scores": 50, "saliency": 450, "perturbation": 500}
Work = dict[str, Callable[[], object]]


def least(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Least wall and processor time of a call in milliseconds, after one call to warm up."""
    work()
    walls, processors = [], []
    for _ in range(repeats):
        wall, processor = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    return 1000 * min(walls), 1000 * min(processors)


def updates(built: dict[str, m.SummaryMetric], record: dict[str, Tensor]) -> Work:
    """What it takes to feed each metric the fields it reads."""
    fields = {key: {name: record[name] for name in metric.reads if name in record} for key, metric in built.items()}
    return {key: lambda key=key: built[key].update(**fields[key]) for key in built}


def map_work(images: int) -> Work:
    scores, perturbed_scores = torch.rand(images, UNITS), torch.rand(images, UNITS)
    maps, perturbed_maps = torch.rand(images, UNITS, GRID, GRID), torch.rand(images, UNITS, GRID, GRID)
    unit_ids = top_units(scores, SELECTED)
    record = {
        "logits": torch.randn(images, CLASSES),
        "labels": torch.randint(CLASSES, (images,)),
        "perturbed_logits": torch.randn(images, CLASSES),
        "scores": scores,
        "unit_ids": unit_ids,
        "maps": gather_units(maps, unit_ids),
        "perturbed_maps": gather_units(perturbed_maps, unit_ids),
        "latent": torch.rand(images, CHANNELS, GRID, GRID),
        "valid": torch.ones(images, SELECTED, dtype=torch.bool),
    }
    vectors = torch.rand(UNITS, CHANNELS)
    general = {
        "general/accuracy": m.Accuracy(),
        "general/balanced_accuracy": m.BalancedAccuracy(CLASSES),
        "general/top3_accuracy": m.TopKAccuracy(3),
        "general/f1": m.F1Score(CLASSES),
        "compactness/local_size": m.LocalSize(),
        "contrastivity/plc": m.PrototypeLocationContrast(),
        "contrastivity/palc": m.PrototypeActivationLocationContrast(),
        "contrastivity/entropy": m.PrototypeEntropy(UNITS),
        **{f"contrastivity/apd_{side}": m.AveragePrototypeDistance(vectors, CLASSES, side) for side in SIDES},
        **{f"contrastivity/afd_{side}": m.AverageFeatureDistance(CLASSES, CHANNELS, side) for side in SIDES},
    }
    work = {
        "top units": lambda: top_units(scores, SELECTED),
        "gather clean maps": lambda: gather_units(maps, unit_ids),
        "gather perturbed maps": lambda: gather_units(perturbed_maps, unit_ids),
        **updates(general, record),
    }
    per_unit = torch.rand(images, SELECTED, UNITS)
    for family, perturbed in (("completeness", per_unit), ("continuity", perturbed_scores)):
        work |= updates(change_metrics(family), record | {"perturbed_scores": perturbed})
    classes = {"continuity/cac": m.ClassificationActivationChange(), "continuity/crc": m.ClassificationRankChange()}
    return work | updates(classes, record)


SIDES = ("inter", "intra")


def change_metrics(family: str) -> dict[str, m.SummaryMetric]:
    return {
        f"{family}/plc": m.PrototypeLocationChange(),
        f"{family}/palc": m.PrototypeActivationLocationChange(),
        f"{family}/pac": m.PrototypeActivationChange(),
        f"{family}/psc": m.PrototypeSimilarityChange(),
        f"{family}/prc": m.PrototypeRankChange(),
    }


def saliency_work(images: int) -> Work:
    raw, perturbed = torch.randn(images, SELECTED, SIDE, SIDE), torch.randn(images, SELECTED, SIDE, SIDE)
    masks = torch.zeros(images, SIDE, SIDE, dtype=torch.bool)
    masks[:, SIDE // 4 : -SIDE // 4, SIDE // 4 : -SIDE // 4] = True
    record = {
        "saliency": clip_saliency(raw),
        "perturbed_saliency": clip_saliency(perturbed),
        "object_masks": masks,
        "valid": torch.ones(images, SELECTED, dtype=torch.bool),
    }
    built = {
        "completeness/vlc": m.VisualizationLocationChange(quantile=None),
        "completeness/vac": m.VisualizationActivationChange(quantile=None),
        "complexity/object_overlap": m.ObjectOverlap(quantile=None),
        "complexity/background_overlap": m.BackgroundOverlap(quantile=None),
        "complexity/iord": m.InsideOutsideRelevanceDifference(quantile=None),
    }
    clips = {"clip clean": lambda: clip_saliency(raw), "clip perturbed": lambda: clip_saliency(perturbed)}
    return {**clips, **updates(built, record)}


def perturbation_work(images: int) -> Work:
    clean, keys = torch.rand(images, 3, SIDE, SIDE), torch.randint(2**62, (images,))
    boxes = torch.tensor([SIDE // 4, SIDE // 4, SIDE // 2, SIDE // 2]).expand(images, SELECTED, 4)
    return {"completeness": lambda: completeness_perturbation(clean, boxes, keys)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=32, help="images per batch")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch")
    parser.add_argument("--repeats", type=int, default=10, help="repeats, of which the fastest counts")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    print(f"{arguments.images} images, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{'':34} {'wall ms':>9} {'processor ms':>13}")
    groups = {"maps and scores": map_work, "saliency": saliency_work, "perturbation": perturbation_work}
    for group, make in groups.items():
        with torch.inference_mode():
            times = {name: least(work, arguments.repeats) for name, work in make(arguments.images).items()}
        for name, (wall, processor) in times.items():
            print(f"  {name:32} {wall:>9.2f} {processor:>13.2f}")
        total = [sum(pair[column] for pair in times.values()) for column in (0, 1)]
        print(f"{group:34} {total[0]:>9.1f} {total[1]:>13.1f}   floor {FLOORS[group]} ms\n")


if __name__ == "__main__":
    main()
