"""Alignment: whether a unit stands for one part of the object, even under noise and attack."""

from protometry.metrics.alignment.misalignment import MISALIGNMENT, SpatialMisalignment
from protometry.metrics.alignment.on_object import ON_OBJECT, OnObject
from protometry.metrics.alignment.part_consistency import CONSISTENCY, PartConsistency
from protometry.metrics.alignment.part_purity import PURITY, PartPurity
from protometry.metrics.alignment.part_stability import STABILITY, STABILITY_NONEMPTY, PartStability
from protometry.metrics.alignment.parts_covered import PARTS_COVERED, PartsCovered
from protometry.metrics.entry import Family

__all__ = ["OnObject", "PartConsistency", "PartPurity", "PartStability", "PartsCovered", "SpatialMisalignment"]

FAMILY = Family(
    "alignment",
    "Does a unit stand for one part of the object, even under noise and attack?",
    (CONSISTENCY, STABILITY, STABILITY_NONEMPTY, PURITY, ON_OBJECT, PARTS_COVERED, *MISALIGNMENT),
    about="Consistency, stability, purity and covered parts are measured on all images of the split, however few are "
    "asked for (`--limit N`; `--images N` of an audit; `protocol.whole_split`), since chance decides where a unit has "
    "few images (`images_per_unit`). Their control, `random_peak`, puts the peak of every unit at a random cell of the "
    "same images. Consistency, purity and covered parts leave out units with fewer than 5 images. The attack of "
    "misalignment takes 40 gradient steps for each image. Of more than 1,000 images, 1,000 are drawn by class, and "
    "`protocol` has `attacked: 1000`; `--attacked N` draws N, `--attacked null` takes all.",
)
