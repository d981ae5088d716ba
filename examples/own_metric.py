"""A metric of your own: a kernel, a class, an entry; on the command line `--suite general,examples.own_metric.ENTRY`.

python examples/own_metric.py runs/quickstart/checkpoints/last.ckpt
"""

import sys

import torch
from lightning import Trainer
from torch import Tensor

from protometry.callbacks import Interpretability
from protometry.datamodules import load_datamodule
from protometry.lightning_modules import load_model
from protometry.metrics import ImageMean
from protometry.metrics.entry import MetricEntry, Words


def score_margin(scores: Tensor, unit_ids: Tensor) -> Tensor:
    """How far the strongest of the units looked at lies above the weakest of them, (B,) float64."""
    top = scores.gather(1, unit_ids.clamp(min=0)).double().masked_fill(unit_ids < 0, torch.nan)
    return top.nan_to_num(-torch.inf).amax(1) - top.nan_to_num(torch.inf).amin(1)


class ScoreMargin(ImageMean):
    """Mean margin of scores (higher is more selective)."""

    unit = "score"
    value_range = (0.0, float("inf"))
    higher_is_better = True

    def update(self, scores: Tensor, unit_ids: Tensor) -> None:
        """Add a batch: the arguments are fields of the view of an image."""
        self._accumulate(score_margin(scores, unit_ids)[:, None])


WORDS = Words(
    question="Does one unit stand out?",
    name="Score margin",
    formula="max s − min s over the top-k units",
    source="none",
    misread="Scores of two models have two scales.",
)
ENTRY = MetricEntry("own/score_margin", ScoreMargin, WORDS, lambda facts: ScoreMargin(), ("two_units",))

if __name__ == "__main__":
    model, data = load_model(sys.argv[1]), load_datamodule(sys.argv[1])
    suite = Interpretability(["general/accuracy", "__main__.ENTRY"])
    options = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    (values,) = Trainer(callbacks=[suite], **options).test(model, data, verbose=False)
    print(*(f"{key:<40} {value:8.3f}" for key, value in values.items()), sep="\n")
