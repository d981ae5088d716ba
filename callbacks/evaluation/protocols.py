"""The protocol that brings a view of its own to an evaluation: the one place of the engine that knows its name."""

from protometry.callbacks.evaluation.funnybirds.interface import Interface, reads_parts, refuse_interface
from protometry.callbacks.evaluation.funnybirds.protocol import FunnyBirdsProtocol as PartsProtocol

__all__ = ["Interface", "PartsProtocol", "reads_parts", "refuse_interface"]
