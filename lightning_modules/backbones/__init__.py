"""Backbones with built-in input normalisation and known geometry; plain modules without Lightning."""

from protometry.lightning_modules.backbones.backbone import (
    Backbone,
    BackboneOptions,
    build_backbone,
    class_path_of,
)
from protometry.lightning_modules.backbones.normalize import Normalize

__all__ = ["Backbone", "BackboneOptions", "Normalize", "build_backbone", "class_path_of"]
