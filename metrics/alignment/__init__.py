"""Alignment: whether a unit stands for one part of the object, even under noise and attack."""

from metrics.alignment.on_object import ON_OBJECT, OnObject
from metrics.entry import Family

__all__ = ["OnObject"]

FAMILY = Family(
    "alignment",
    "Does a unit stand for one part of the object, even under noise and attack?",
    (ON_OBJECT,),
)
