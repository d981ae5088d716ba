"""How long the metrics of one batch take, without a model: ``python benchmarks/metrics.py``.

Prints milliseconds per metric and family for 32 images, 2,000 units with 7 x 7 maps, five units per image and saliency
of 224 x 224, next to the floors on two threads: 50 ms for what reads maps and scores, 450 ms for what reads saliency,
both clips included, and 500 ms for the noisy images of completeness. The smallest of several repeats counts. Both
columns grow where other work shares the cores, because threads wait for each other.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protometry import metrics
from protometry.metrics.functional import clip_saliency, completeness_perturbation, gather_units, top_units

CLASSES, UNITS, CHANNELS, GRID, SELECTED, SIDE = 200, 2000, 128, 7, 5, 224
SEEN = 5600  # images that PrototypeEntropy keeps already, about the test images of CUB-200-2011
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


def updates(built: Mapping[str, metrics.SummaryMetric], record: dict[str, Tensor]) -> Work:
    """What it takes to feed each metric the fields it reads."""
    fields = {key: {name: record[name] for name in metric.reads} for key, metric in built.items()}
    return {key: lambda key=key: built[key].update(**fields[key]) for key in built}


def clean_metrics() -> dict[str, metrics.SummaryMetric]:
    vectors, entropy = torch.rand(UNITS, CHANNELS), metrics.PrototypeEntropy(UNITS)
    entropy.update(torch.rand(SEEN, UNITS))
    built = {
        "general/accuracy": metrics.Accuracy(),
        "general/balanced_accuracy": metrics.BalancedAccuracy(CLASSES),
        "general/top3_accuracy": metrics.TopKAccuracy(3),
        "general/f1": metrics.F1Score(CLASSES),
        "compactness/local_size": metrics.LocalSize(),
        "contrastivity/plc": metrics.PrototypeLocationContrast(),
        "contrastivity/palc": metrics.PrototypeActivationLocationContrast(),
        "contrastivity/entropy": entropy,
    }
    for mode in ("intra", "inter"):
        built[f"contrastivity/apd_{mode}"] = metrics.AveragePrototypeDistance(vectors, CLASSES, mode)
        built[f"contrastivity/afd_{mode}"] = metrics.AverageFeatureDistance(CLASSES, CHANNELS, mode)
    return built


def change_metrics(view: str) -> dict[str, metrics.SummaryMetric]:
    built = {
        "plc": metrics.PrototypeLocationChange(),
        "palc": metrics.PrototypeActivationLocationChange(),
        "pac": metrics.PrototypeActivationChange(),
        "psc": metrics.PrototypeSimilarityChange(),
        "prc": metrics.PrototypeRankChange(),
    }
    if view == "continuity":
        built |= {"cac": metrics.ClassificationActivationChange(), "crc": metrics.ClassificationRankChange()}
    return {f"{view}/{name}": metric for name, metric in built.items()}


def map_work(images: int) -> Work:
    scores, maps = torch.rand(images, UNITS), torch.rand(images, UNITS, GRID, GRID)
    perturbed_maps = torch.rand(images, UNITS, GRID, GRID)
    unit_ids = top_units(scores, SELECTED)
    record = {
        "labels": torch.randint(CLASSES, (images,)),
        "logits": torch.randn(images, CLASSES),
        "abstained": torch.zeros(images, dtype=torch.bool),
        "perturbed_logits": torch.randn(images, CLASSES),
        "scores": scores,
        "perturbed_scores": torch.rand(images, UNITS),
        "unit_ids": unit_ids,
        "maps": gather_units(maps, unit_ids),
        "perturbed_maps": gather_units(perturbed_maps, unit_ids),
        "latent": torch.rand(images, CHANNELS, GRID, GRID),
        "valid": torch.ones(images, SELECTED, dtype=torch.bool),
    }
    one_image_per_unit = record | {"perturbed_scores": torch.rand(images, SELECTED, UNITS)}
    return {
        "top units": lambda: top_units(scores, SELECTED),
        "clean maps of the top units": lambda: gather_units(maps, unit_ids),
        "perturbed maps of the top units": lambda: gather_units(perturbed_maps, unit_ids),
        **updates(clean_metrics(), record),
        **updates(change_metrics("completeness"), one_image_per_unit),
        **updates(change_metrics("continuity"), record),
    }


def saliency_work(images: int) -> Work:
    raw, perturbed = torch.randn(2, images, SELECTED, SIDE, SIDE)
    masks = torch.zeros(images, SIDE, SIDE, dtype=torch.bool)
    masks[:, SIDE // 4 : -SIDE // 4, SIDE // 4 : -SIDE // 4] = True
    record = {
        "saliency": clip_saliency(raw),
        "perturbed_saliency": clip_saliency(perturbed),
        "object_masks": masks,
        "valid": torch.ones(images, SELECTED, dtype=torch.bool),
    }
    built = {
        "completeness/vlc": metrics.VisualizationLocationChange(quantile=None),
        "completeness/vac": metrics.VisualizationActivationChange(quantile=None),
        "complexity/object_overlap": metrics.ObjectOverlap(quantile=None),
        "complexity/background_overlap": metrics.BackgroundOverlap(quantile=None),
        "complexity/iord": metrics.InsideOutsideRelevanceDifference(quantile=None),
    }
    clips: Work = {"clip clean": lambda: clip_saliency(raw), "clip perturbed": lambda: clip_saliency(perturbed)}
    return clips | updates(built, record)


def perturbation_work(images: int) -> Work:
    clean, keys = torch.rand(images, 3, SIDE, SIDE), torch.randint(2**62, (images,))
    boxes = torch.tensor([SIDE // 4, SIDE // 4, SIDE // 2, SIDE // 2]).expand(images, SELECTED, 4)
    return {"noise outside boxes": lambda: completeness_perturbation(clean, boxes, keys)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=32, help="images per batch")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch")
    parser.add_argument("--repeats", type=int, default=10, help="repeats; the fastest counts")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    print(f"{arguments.images} images, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{'':34} {'wall ms':>9} {'processor ms':>13}")
    groups = {"maps and scores": map_work, "saliency": saliency_work, "perturbation": perturbation_work}
    for group, make in groups.items():
        with torch.inference_mode():
            times = {name: least(work, arguments.repeats) for name, work in make(arguments.images).items()}
        families: dict[str, list[tuple[float, float]]] = {}
        for name, (wall, processor) in times.items():
            print(f"  {name:32} {wall:>9.2f} {processor:>13.2f}")
            if "/" in name:
                families.setdefault(name.split("/")[0], []).append((wall, processor))
        for family, pairs in families.items():
            wall, processor = (sum(column) for column in zip(*pairs, strict=True))
            print(f"  all of {family:25} {wall:>9.2f} {processor:>13.2f}")
        wall, processor = (sum(pair[column] for pair in times.values()) for column in (0, 1))
        print(f"{group:34} {wall:>9.1f} {processor:>13.1f}   floor {FLOORS[group]} ms\n")


if __name__ == "__main__":
    main()
