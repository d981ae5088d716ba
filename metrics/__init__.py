"""Metrics of explanations: torchmetrics classes, in rooms by family; their kernels are in ``metrics.functional``."""

from metrics.alignment import *
from metrics.base import *
from metrics.change import *
from metrics.class_representation import *
from metrics.compactness import *
from metrics.complexity import *
from metrics.concepts import *
from metrics.contrastivity import *
from metrics.funnybirds import *
from metrics.general import *
from metrics.localisation import *
