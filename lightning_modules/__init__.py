"""What is trained: models, their trunks and heads, their losses and schedules."""

from lightning_modules.classifier import Classifier
from lightning_modules.interpretable import InterpretableModule
from lightning_modules.protopnet import ProtoPNet

__all__ = ["Classifier", "InterpretableModule", "ProtoPNet"]
