"""Backbones with their input normalisation inside and their geometry known; plain modules without Lightning."""

from lightning_modules.backbones.backbone import Backbone, BackboneOptions, Normalize, build_backbone

__all__ = ["Backbone", "BackboneOptions", "Normalize", "build_backbone"]
