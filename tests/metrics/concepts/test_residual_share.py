import math

import torch

from protometry.metrics import ResidualShare
from tests.metrics.tester import Case, MetricTests, mean, nowhere_finite

IMAGES, CLASSES = 11, 4


def record():
    generator = torch.Generator().manual_seed(0)
    residual, unit_logits = torch.randn(2, IMAGES, CLASSES, generator=generator)
    logits = residual + unit_logits + torch.tensor([0.5, 0.0, 0.0, -0.5])
    logits[2], logits[3] = 1.0, torch.nan  # ties; nothing is predicted
    residual[4], residual[5], unit_logits[5] = 0.0, 0.0, 0.0  # no residual; neither part
    return {"logits": logits, "residual": residual, "unit_logits": unit_logits}


def slow_share(record):
    shares = []
    for logits, residual, inside in zip(*(record[name].tolist() for name in record), strict=True):
        predicted = logits.index(max(logits))
        r, e = abs(residual[predicted]), abs(inside[predicted])
        if all(map(math.isfinite, logits)) and r + e > 0:
            shares.append(r / (r + e))
    return mean(shares)


class TestResidualShare(MetricTests):
    cases = {"share": Case(ResidualShare, record(), slow_share, nowhere_finite(record()), IMAGES)}
