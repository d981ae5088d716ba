"""Models, their backbones and heads, their losses and training schedules."""

from protometry.lightning_modules.bagnet import BagNet
from protometry.lightning_modules.bases.check_contract import check_contract
from protometry.lightning_modules.bases.interpretable import InterpretableModule
from protometry.lightning_modules.bases.load import load_model
from protometry.lightning_modules.cem import CEM
from protometry.lightning_modules.classifier import Classifier
from protometry.lightning_modules.concept_bottleneck import ConceptBottleneck
from protometry.lightning_modules.deformable_protopnet import DeformableProtoPNet
from protometry.lightning_modules.intcem import IntCEM
from protometry.lightning_modules.label_free_cbm import LabelFreeCBM
from protometry.lightning_modules.pipnet import PIPNet
from protometry.lightning_modules.posthoc_cbm import PosthocCBM
from protometry.lightning_modules.protopnet import ProtoPNet
from protometry.lightning_modules.protopool import ProtoPool
from protometry.lightning_modules.prototree import ProtoTree
from protometry.lightning_modules.protovit import ProtoViT
from protometry.lightning_modules.qpm import QPM
from protometry.lightning_modules.released import load_released
from protometry.lightning_modules.st_protopnet import STProtoPNet
from protometry.lightning_modules.tesnet import TesNet

__all__ = [
    "CEM",
    "QPM",
    "BagNet",
    "Classifier",
    "ConceptBottleneck",
    "DeformableProtoPNet",
    "IntCEM",
    "InterpretableModule",
    "LabelFreeCBM",
    "PIPNet",
    "PosthocCBM",
    "ProtoPNet",
    "ProtoPool",
    "ProtoTree",
    "ProtoViT",
    "STProtoPNet",
    "TesNet",
    "check_contract",
    "load_model",
    "load_released",
]
