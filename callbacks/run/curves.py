"""The figure of a training: its loss and accuracy over the epochs, with a line where each phase begins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from lightning import Callback, LightningModule, Trainer
from PIL import Image, ImageDraw, ImageFont

from callbacks.run.loggers import log_images
from explanations.views import BLACK, WHITE, cut_text, png
from lightning_modules.contract import InterpretableModel
from run_folder.atomic import write_whole

WIDTH, HEIGHT = 760, 420  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 64, 52  # around the axes
FONT, LINE, TICKS = 16, 3, 5
GREY, PHASE = "#d0d0d0", "#808080"
PANELS = {  # key as logged -> factor, name, colour
    "loss": {"train/loss": (1.0, "training", "#0072b2")},
    "accuracy in %": {
        "train/accuracy": (100.0, "training", "#0072b2"),
        "val/general/accuracy": (100.0, "validation", "#d55e00"),
    },
}
Row = Mapping[str, Any]


class TrainingCurves(Callback):
    """Draws ``training.png`` into the run folder after every epoch, and sends it to the loggers when a phase ends.

    The figures of the epochs so far are in every checkpoint, so that a resumed run draws all of them.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def state_dict(self) -> dict[str, Any]:
        """The figures of every epoch so far."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with those of the interrupted run."""
        self.rows = list(state_dict["rows"])

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add an epoch."""
        plan, epoch = cast(InterpretableModel, pl_module).phases(), trainer.current_epoch
        index, _ = plan.locate(epoch)
        keys = [key for panel in PANELS.values() for key in panel if key in trainer.callback_metrics]
        row = {key: trainer.callback_metrics[key].item() for key in keys}
        self.rows = [*self.rows[:epoch], {"phase": plan.phases[index].name, **row}]
        if not trainer.is_global_zero or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        picture = training_curves(self.rows)
        write_whole(Path(trainer.default_root_dir) / "training.png", png(picture))
        if epoch + 1 == trainer.max_epochs or plan.locate(epoch + 1)[0] != index or trainer.should_stop:
            caption = f"after epoch {epoch + 1}, phase {plan.phases[index].name}"
            log_images(trainer.loggers, "media/training", [picture], [caption], trainer.global_step - 1)


def training_curves(rows: Sequence[Row]) -> Image.Image:
    """Panels of the loss and of the accuracies, side by side.

    Args:
        rows: one per epoch: ``phase``, the name of the phase, and the values by key as logged; a curve has a gap where
            its key is missing or its value is not finite.

    Returns:
        A picture of 760 × 420 pixels for every panel that has a value.

    Raises:
        ValueError: without a row.
    """
    if not rows:
        raise ValueError("Expected argument `rows` to hold at least one epoch, but got none.")
    shown = {title: curves for title, curves in PANELS.items() if any(key in row for row in rows for key in curves)}
    picture = Image.new("RGB", (WIDTH * max(1, len(shown)), HEIGHT), WHITE)
    for index, (title, curves) in enumerate(shown.items()):
        values = {
            (name, colour): [factor * row[key] if key in row else math.nan for row in rows]
            for key, (factor, name, colour) in curves.items()
            if any(key in row for row in rows)
        }
        picture.paste(_panel(title, values, [row["phase"] for row in rows]), (index * WIDTH, 0))
    return picture


def _panel(title: str, curves: Mapping[tuple[str, str], Sequence[float]], phases: Sequence[str]) -> Image.Image:
    panel = Image.new("RGB", (WIDTH, HEIGHT), WHITE)
    draw, font = ImageDraw.Draw(panel), ImageFont.load_default(FONT)
    known = [value for values in curves.values() for value in values if math.isfinite(value)] or [0.0]
    ticks = _ticks(min(known), max(known))
    low, high, epochs = ticks[0], ticks[-1], len(phases)

    def place(epoch: float, value: float) -> tuple[float, float]:
        """Pixels of a value after ``epoch`` epochs."""
        x = LEFT + (WIDTH - LEFT - RIGHT) * epoch / epochs
        return x, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    for tick in ticks:
        draw.line([place(0, tick), place(epochs, tick)], fill=GREY)
        draw.text((LEFT - 8, place(0, tick)[1]), f"{tick:g}", fill=BLACK, font=font, anchor="rm")
    starts = [epoch for epoch in range(epochs) if epoch == 0 or phases[epoch] != phases[epoch - 1]]
    for start, end in zip(starts, [*starts[1:], epochs], strict=True):
        x, room = place(start, low)[0], place(end, low)[0] - place(start, low)[0] - 6
        draw.line([(x, TOP - 22), (x, HEIGHT - BOTTOM)], fill=PHASE)
        if room > font.getlength("…"):
            draw.text((x + 4, TOP - 24), cut_text(phases[start], FONT, int(room)), fill=PHASE, font=font)
    for (_, colour), values in curves.items():
        points = [(place(epoch + 1, value), math.isfinite(value)) for epoch, value in enumerate(values)]
        for (one, finite), (other, next_finite) in pairwise(points):
            if finite and next_finite:
                draw.line([one, other], fill=colour, width=LINE)
        for x, y in (point for point, finite in points if finite):
            draw.ellipse((x - LINE, y - LINE, x + LINE, y + LINE), fill=colour)
    draw.text((LEFT, 8), title, fill=BLACK, font=font)
    for column, (name, colour) in enumerate(curves):
        draw.text((WIDTH - RIGHT - 110 * column, 8), name, fill=colour, font=font, anchor="ra")
    for epoch in {0, epochs}:
        draw.text((place(epoch, low)[0], HEIGHT - BOTTOM + 8), str(epoch), fill=BLACK, font=font, anchor="ma")
    draw.text((WIDTH / 2, HEIGHT - 26), "epochs", fill=BLACK, font=font, anchor="ma")
    return panel


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers from below the lowest to above the highest value.

    Example:
        >>> _ticks(0.3, 4.2), _ticks(97.0, 97.0)
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [97.0, 98.0])
    """
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-9) / TICKS)) if high > low else 1.0
    step = next(step * factor for factor in (1, 2, 5, 10) if step * factor * TICKS >= high - low)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * index, 12) for index in range(first, max(last, first + 1) + 1)]
