"""Base classes of all metrics: mean over images, ratio of sums over images, mean over items, number of the model.

An argument of ``update`` means the same in every metric. Of an image there are the ``logits`` (B, K) and
``probabilities`` (B, K), its ``labels`` (B,) in [0, K) or (B, K) bool, whether the model ``abstained`` (B,), its
``sample_ids`` (B,), the ``scores`` (B, U) of all units, the parts at ``part_locations`` (B, N, 2), pixels (x, y), that
are ``part_visible`` (B, N), and ``object_masks`` (B, H, W). Of its top-k units there are ``unit_ids`` (B, k), -1 for an
empty slot, ``maps`` (B, k, h, w) and ``saliency`` (B, k, H, W), and whether a perturbation of them was ``valid`` (B,
k). Of the active units of its class there are ``owned_ids`` (B, M), padded with -1, and ``owned_peaks`` (B, M, 2),
pixels (x, y). ``perturbed_`` is the same on the perturbed image. Where a docstring has ``Inputs``, it describes the
others. By their names in torchmetrics, ``preds`` are the logits and ``target`` the labels.
"""

from __future__ import annotations

import inspect
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import count
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import rank_zero_warn

from protometry.metrics.primitives.checks import check_argument, check_tensor, our_names
from protometry.metrics.primitives.intervals import Range, mean_interval, ratio_interval, wilson_interval

__all__ = ["ImageMean", "ImageRatio", "ItemMean", "ModelValue", "PartsMetric", "SummaryMetric"]

AveragedOver = Literal["image", "unit", "class", "concept", "label", "none"]
Interval = Literal["mean", "wilson"]

_UNBOUNDED = dict.fromkeys(("count", "ranks", "cells"), (0.0, math.inf))
_RANGES: dict[str, Range] = {"fraction": (0.0, 1.0), **_UNBOUNDED}  # of values in a unit

_SERIALS = count()


@contextmanager
def all_or_nothing(metric: Metric) -> Iterator[None]:
    """Puts a metric, and those it holds, back if a batch is refused halfway, so that a retry counts it once.

    Updates replace states, or write to them once nothing can be refused any more: references will do, without a copy.
    """
    before = [(part, vars(part).copy()) for part in metric.modules()]
    try:
        yield
    except BaseException:
        for part, attributes in before:
            vars(part).clear()
            vars(part).update(attributes)
        raise


def entry(*result: Tensor) -> dict[str, float]:
    """The summary of a value, n, the number of skipped entries and the bounds of the interval."""
    value, n, skipped, low, high = torch.stack([part.double() for part in result]).tolist()
    return {"value": value, "low": low, "high": high, "n": int(n), "skipped": int(skipped)}


class ReportedMetric(Metric):
    """A metric that an evaluation feeds and reports.

    ``update`` takes a batch whole or, with a ``ValueError`` or ``TypeError`` where an argument has another shape,
    dtype, range or device than it should, not at all. What is undefined is left out and counted.

    Attributes:
        reads: argument names of ``update``, taken from its signature.
        unit: of the value, such as ``"fraction"``.
        higher_is_better: direction of the source paper.
        averaged_over: what ``n`` counts; ``"none"`` for a number of the model.
        value_range: smallest and largest possible value, which the interval does not leave; by default of a value in
            the unit.
        undefined: what else there is to say where nothing was defined.
    """

    undefined: str | None = None
    is_differentiable = False
    full_state_update = False
    reads: tuple[str, ...]
    unit: str
    averaged_over: AveragedOver
    value_range: Range = (-math.inf, math.inf)
    _kinds: dict[str, str]  # annotations of what it reads

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "unit" in vars(cls) and "value_range" not in vars(cls):
            cls.value_range = _RANGES.get(cls.unit, (-math.inf, math.inf))
        cls.plot_lower_bound, cls.plot_upper_bound = (b if math.isfinite(b) else None for b in cls.value_range)
        parameters = list(inspect.signature(cls.update).parameters.values())[1:]
        cls.reads = tuple(parameter.name for parameter in parameters)
        cls._kinds = {parameter.name: str(parameter.annotation) for parameter in parameters}

    def nothing_measured(self, skipped: int) -> str:
        """Why the value is NaN, given the number of undefined entries."""
        text = f"nothing it could measure among {skipped} entries"
        return f"{text}, since {self.undefined}" if self.undefined else text

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw ``val``, by default the value, as other metrics of torchmetrics do: figure and axes."""
        return self._plot(val, ax)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch and return its value."""
        with all_or_nothing(self):
            return super().forward(*args, **kwargs)

    def _wrap_update(self, update: Callable[..., None]) -> Callable[..., None]:
        add = super()._wrap_update(update)

        @wraps(update)
        def checked(*args: Any, **kwargs: Any) -> None:
            kwargs = our_names(kwargs)
            for name, value in [*zip(self.reads, args, strict=False), *kwargs.items()]:
                check_argument(name, value, self._kinds.get(name, ""), self.device)
            with all_or_nothing(self):
                add(*args, **kwargs)

        return checked

    def _filter_kwargs(self, **kwargs: Any) -> dict[str, Any]:
        """Those of the arguments that the metric reads, of all arguments of a ``MetricCollection``."""
        return super()._filter_kwargs(**our_names(kwargs))


class SeparateMetric(ReportedMetric):
    """A metric that shares its states with no other.

    By default, a ``MetricCollection`` of torchmetrics lets metrics share their states for good if the states are equal
    after the first batch, whatever the classes and options. The state ``serial`` is different for each metric built.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # two small numbers: torchmetrics takes states for equal that agree in five digits
        self.add_state("serial", torch.tensor(divmod(next(_SERIALS), 1000)), dist_reduce_fx="max")


class ImageSums(SeparateMetric):
    """A metric whose states are sums over images: of values, of their squares, of defined and of undefined ones."""

    value_sum: Tensor
    square_sum: Tensor
    image_count: Tensor
    skipped: Tensor

    def _add_sums(self, *shape: int) -> None:
        for state, dtype in (
            ("value_sum", torch.float64),
            ("square_sum", torch.float64),
            ("image_count", torch.int64),
            ("skipped", torch.int64),
        ):
            self.add_state(state, torch.zeros(shape, dtype=dtype), dist_reduce_fx="sum")


class PartsMetric(ReportedMetric):
    """A metric with several numbers, each under a key of its own.

    Attributes:
        units: part -> unit of its value, in the order of results.
        value_ranges: part -> smallest and largest possible value.
        exceptions: part -> ``higher_is_better`` or ``averaged_over`` where the class says otherwise.
    """

    units: ClassVar[dict[str, str]]
    value_ranges: ClassVar[dict[str, Range]]
    exceptions: ClassVar[dict[str, dict[str, Any]]] = {}

    @abstractmethod
    def summary(self) -> dict[str, dict[str, Any]]:
        """For each part what :meth:`SummaryMetric.summary` returns; every process has to call it."""

    @property
    def image_values(self) -> dict[str, Tensor]:
        """Part -> its values of the last batch, for the parts that have one for every image; no state.

        ``(B,)``, or ``(B, T)`` at T thresholds, one chosen at the end.
        """
        return {}


class SummaryMetric(SeparateMetric):
    """A metric with one number, an interval and counts of what was defined and what was not.

    Subclasses set the attributes of :class:`ReportedMetric` and answer ``_estimate`` and ``_interval`` from their
    states.
    """

    @abstractmethod
    def _estimate(self) -> tuple[Tensor, Tensor, Tensor]:
        """Value, n and number of skipped entries of the current states."""

    @abstractmethod
    def _interval(self) -> tuple[Tensor, Tensor]:
        """Bounds of the 95 % interval of the current states."""

    def _result(self) -> tuple[Tensor, ...]:
        return *self._estimate(), *self._interval()

    def compute(self) -> Tensor:
        """The value over all processes, a float64 scalar; NaN, with a warning, if nothing was defined."""
        value, n, skipped = self._estimate()
        if n == 0 and self.update_called:  # torchmetrics itself warns where update was never called
            rank_zero_warn(f"{type(self).__name__} is NaN: {self.nothing_measured(int(skipped))}.", UserWarning)
        return value

    def summary(self) -> dict[str, float]:
        """The value with its interval, over all processes.

        Every process has to call it, as with ``compute``.

        Returns:
            ``value``, the bounds ``low`` and ``high`` of the 95 % interval, ``n`` values averaged and the number of
            undefined entries ``skipped``; NaN for what is undefined.
        """
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync), torch.no_grad():
            return {**entry(*self._result()), **self._additions()}

    def _additions(self) -> dict[str, Any]:
        """What else there is to say about the current states; its keys are in ``metrics.json``, too."""
        return {}


class ImageMean(ImageSums, SummaryMetric):
    """Mean over images, each counted once.

    The values of the units of an image are averaged before images are, so that ``n`` counts images and the interval is
    not too narrow. Values that are not finite are undefined: left out and counted. Sums are float64 and counts int64,
    so that batch size, order and number of processes cannot move the result.

    Subclasses call ``_accumulate`` in ``update``. The interval is for a mean over images, or Wilson's where a subclass
    sets ``interval = "wilson"`` because an image's value is 0 or 1.

    Attributes:
        image_values: ``(B,)`` float64, the value of each image of the last batch, NaN where it has none; no state.
    """

    averaged_over: AveragedOver = "image"
    interval: Interval = "mean"
    image_values: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._add_sums()

    def _accumulate(self, values: Tensor, valid: Tensor | None = None) -> None:
        """Add ``(B,)`` or ``(B, k)`` values, undefined where not finite or where ``valid`` is False."""
        values = values.detach().double()
        defined = values.isfinite()
        if valid is not None:
            check_tensor("valid", valid, tuple(values.shape), "bool")
            defined = defined & valid
        undefined = ~defined
        if values.ndim == 2:
            defined = defined.sum(dim=1)  # of each image; 0 / 0 is NaN
            self.image_values = values.masked_fill(undefined, 0).sum(dim=1) / defined
        else:
            self.image_values = values.masked_fill(undefined, torch.nan)
        self.value_sum = self.value_sum + self.image_values.nansum()
        self.square_sum = self.square_sum + self.image_values.square().nansum()
        self.image_count = self.image_count + defined.count_nonzero()
        self.skipped = self.skipped + undefined.count_nonzero()

    def _estimate(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.value_sum / self.image_count, self.image_count, self.skipped

    def _interval(self) -> tuple[Tensor, Tensor]:
        if self.interval == "wilson":
            return wilson_interval(self.value_sum, self.image_count)
        return mean_interval(self.value_sum, self.square_sum, self.image_count, value_range=self.value_range)


class ImageRatio(SummaryMetric):
    """Ratio of two sums over images, with images as the clusters of the interval.

    Subclasses call ``_accumulate`` in ``update`` with a numerator and a denominator per image. An image in which
    either is not finite or the denominator is 0 has nothing to measure: left out and counted.
    """

    averaged_over: AveragedOver = "image"
    sums: Tensor
    image_count: Tensor
    skipped: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("sums", torch.zeros(5, dtype=torch.float64), dist_reduce_fx="sum")  # a, b, aa, bb, ab
        self.add_state("image_count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("skipped", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def _accumulate(self, numerator: Tensor, denominator: Tensor) -> None:
        """Add ``(B,)`` numerators and ``(B,)`` denominators >= 0."""
        a, b = numerator.detach().double(), denominator.detach().double()
        undefined = ~(a.isfinite() & b.isfinite() & (b != 0))
        a, b = a.masked_fill(undefined, 0), b.masked_fill(undefined, 0)
        self.sums = self.sums + torch.stack([a, b, a * a, b * b, a * b]).sum(dim=1)
        self.image_count = self.image_count + (~undefined).sum()
        self.skipped = self.skipped + undefined.sum()

    def _estimate(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.sums[0] / self.sums[1], self.image_count, self.skipped

    def _interval(self) -> tuple[Tensor, Tensor]:
        return ratio_interval(self.sums, self.image_count, value_range=self.value_range)


class ItemMean(SummaryMetric):
    """Mean over the items whose value is defined.

    The interval reflects the spread of the items, not the sampling of images, unless a subclass says otherwise: for a
    mean, or Wilson's where a subclass sets ``interval = "wilson"`` because an item's value is 0 or 1. ``n`` counts
    items; ``skipped`` counts undefined items and the inputs that ``update`` left out (state ``dropped``). A subclass
    that computes number or interval otherwise overrides ``_estimate_of`` or ``_interval_of``.
    """

    interval: Interval = "mean"
    dropped: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("dropped", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    @abstractmethod
    def values(self) -> Tensor:
        """One float64 value per item, NaN where undefined.

        Computed from the current states: enter ``sync_context()`` for the states of all processes. Two int64 counts
        divide to float32, so cast one of them first.
        """

    def _estimate(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._estimate_of(*self._defined())

    def _interval(self) -> tuple[Tensor, Tensor]:
        return self._interval_of(*self._defined())

    def _result(self) -> tuple[Tensor, ...]:
        items = self._defined()  # once, since it may take long
        return *self._estimate_of(*items), *self._interval_of(*items)

    def _estimate_of(self, values: Tensor, undefined: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        n = (~undefined).sum()
        return values.sum() / n, n, undefined.sum() + self.dropped

    def _interval_of(self, values: Tensor, undefined: Tensor) -> tuple[Tensor, Tensor]:
        n = (~undefined).sum()
        if self.interval == "wilson":
            return wilson_interval(values.sum(), n)
        return mean_interval(values.sum(), values.square().sum(), n, value_range=self.value_range)

    def _defined(self) -> tuple[Tensor, Tensor]:
        values = self.values()
        if values.dtype != torch.float64:
            raise TypeError(
                f"Expected method `values` to return float64, but got {values.dtype}; cast before dividing."
            )
        undefined = ~values.isfinite()
        return values.masked_fill(undefined, 0), undefined


class ModelValue(SummaryMetric):
    """One number of the model.

    ``update`` overwrites: call it once, with the same facts on every process. A fact has no interval, so the bounds
    of ``summary`` are NaN, and ``n`` is 1, meaning one model (0 where the number is undefined).
    """

    averaged_over: AveragedOver = "none"
    value: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # minus infinity = not updated, so that the maximum over processes ignores one that was not
        self.add_state("value", torch.tensor(-torch.inf, dtype=torch.float64), dist_reduce_fx="max")

    def _store(self, value: Tensor) -> None:
        """Keep a scalar; undefined where not finite."""
        value = value.detach().double()
        self.value = value.masked_fill(~value.isfinite(), torch.nan)

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        # forward() merges the earlier state into the new one; here the new one overwrites, as in update()
        if self.value.isneginf():
            self.value = incoming_state["value"]

    def _estimate(self) -> tuple[Tensor, Tensor, Tensor]:
        return (
            self.value.masked_fill(self.value.isneginf(), torch.nan),
            self.value.isfinite().long(),
            self.value.isnan().long(),
        )

    def _interval(self) -> tuple[Tensor, Tensor]:
        return torch.full_like(self.value, torch.nan), torch.full_like(self.value, torch.nan)
