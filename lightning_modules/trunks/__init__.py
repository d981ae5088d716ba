"""Backbones with their input normalisation inside and their geometry known; plain modules without Lightning."""

from lightning_modules.trunks.trunk import Normalize, Trunk, TrunkOptions, build_trunk

__all__ = ["Normalize", "Trunk", "TrunkOptions", "build_trunk"]
