"""Entries in the table of metrics: how to build one, what it needs, which record it reads, and what it means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from protometry.metrics.base import PartsMetric, SummaryMetric
from protometry.metrics.facts import Facts

AnyMetric = SummaryMetric | PartsMetric


@dataclass(frozen=True)
class Words:
    """What a metric means, for docs, reports and tables.

    Args:
        question: it answers, in plain words, for readers who have not read the papers.
        name: of the metric in its paper.
        formula: in one line of Markdown.
        source: short names of the papers in ``docs/papers.md``, with equation or section.
        misread: how the number is easily misread.
        finding: the sentence of an audit, with ``{value}``; empty for a metric that an audit leaves out.
    """

    question: str
    name: str
    formula: str
    source: str
    misread: str
    finding: str = ""


@dataclass(frozen=True)
class MetricEntry:
    """How to build a metric, what it needs, and what it means.

    Args:
        key: of the result, ``"<family>/<name>"``.
        metric: class whose unit, range and direction the docs state.
        words: what it means.
        build: makes the metric from the facts; by default ``metric()``.
        needs: names of ``Family.needs`` or ``protometry.metrics.needs.NEEDS``, or of optional fields of the data set;
            ``"a|b"`` for either of two fields.
        view: the record it reads: of the clean image or of a perturbed one; ``"training"`` for the training images
            through the evaluation transform, instead of the evaluated ones.
        part: which entry of the metric's summary the key refers to, where it has several.
        shared: keys with the same value stand for parts of one and the same metric; None for a metric of its own.
        full: whether it is only part of the suite ``<family>_full``.
        whole_split: whether it is measured on all images of the split, however many an evaluation asks for, since its
            value depends on the number of images of a unit. Without an attack, they cost one forward each.
        attacked: whether it is measured on the images that an evaluation draws for attacks (``attacked``), since its
            view takes many forwards; the same for all metrics of a view.
    """

    key: str
    metric: type[AnyMetric]
    words: Words
    build: Callable[[Facts], AnyMetric] | None = None
    needs: tuple[str, ...] = ()
    view: str = "clean"
    part: str | None = None
    shared: str | None = None
    full: bool = False
    whole_split: bool = False
    attacked: bool = False

    @property
    def unit(self) -> str:
        """Of the value, such as ``"fraction"``."""
        return self.metric.units[self.part or ""] if issubclass(self.metric, PartsMetric) else self.metric.unit

    @property
    def higher_is_better(self) -> bool | None:
        """Direction of the source paper, or None."""
        differs = self.metric.exceptions.get(self.part or "", {}) if issubclass(self.metric, PartsMetric) else {}
        better: bool | None = differs.get("higher_is_better", self.metric.higher_is_better)
        return better

    def make(self, facts: Facts) -> AnyMetric:
        """The metric for a model and a data set."""
        return self.metric() if self.build is None else self.build(facts)


@dataclass(frozen=True)
class Family:
    """Metrics that share the part of their keys before the slash.

    Args:
        name: that part.
        question: what they ask together, in plain words.
        entries: of all its metrics, in the order of results.
        needs: what they may need besides ``protometry.metrics.needs.NEEDS``: None if it is there, else why it is not.
        about: further sentences for the page of all metrics.
    """

    name: str
    question: str
    entries: tuple[MetricEntry, ...]
    needs: Mapping[str, Callable[[Facts], str | None]] = field(default_factory=dict)
    about: str = ""

    def __post_init__(self) -> None:
        keys = [entry.key for entry in self.entries]
        if others := [key for key in keys if key.partition("/")[0] != self.name]:
            raise ValueError(f"Expected keys of the family {self.name!r} to begin with {self.name}/, but got {others}.")
        if len(set(keys)) < len(keys):
            raise ValueError(f"Expected every key of the family {self.name!r} once, but got {keys}.")

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the suite of its name."""
        return tuple(entry.key for entry in self.entries if not entry.full)
