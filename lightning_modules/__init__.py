"""Models, their backbones and heads, their losses and training schedules."""

from lightning_modules.bagnet import BagNet
from lightning_modules.classifier import Classifier
from lightning_modules.concept_bottleneck import ConceptBottleneck
from lightning_modules.interpretable import InterpretableModule
from lightning_modules.load import load_model
from lightning_modules.pipnet import PIPNet
from lightning_modules.posthoc_cbm import PosthocCBM
from lightning_modules.protopnet import ProtoPNet
from lightning_modules.protopool import ProtoPool
from lightning_modules.prototree import ProtoTree
from lightning_modules.qpm import QPM
from lightning_modules.released import load_released

__all__ = [
    "QPM",
    "BagNet",
    "Classifier",
    "ConceptBottleneck",
    "InterpretableModule",
    "PIPNet",
    "PosthocCBM",
    "ProtoPNet",
    "ProtoPool",
    "ProtoTree",
    "load_model",
    "load_released",
]
