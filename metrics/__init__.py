"""Metrics of explanations: torchmetrics classes in packages by family; ``metrics.functional`` has their kernels."""

from protometry.metrics.alignment import *
from protometry.metrics.base import *
from protometry.metrics.change import *
from protometry.metrics.class_representation import *
from protometry.metrics.compactness import *
from protometry.metrics.complexity import *
from protometry.metrics.concepts import *
from protometry.metrics.contrastivity import *
from protometry.metrics.funnybirds import *
from protometry.metrics.general import *
from protometry.metrics.intervention import *
from protometry.metrics.localisation import *
from protometry.metrics.sanity import *
