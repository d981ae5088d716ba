"""The request for one evaluation, and the folder of its result: no result ever replaces that of another request."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from callbacks.evaluation.interpretability import Interpretability
from callbacks.forward.images_per_forward import default_budget
from evaluation.trained_model import TrainedModel
from reports.results.metrics_json import read_content

LONGEST_NAME = 200  # file systems allow 255 bytes
FORMER_BUDGET = 1.0  # default of evaluations that do not name their device
DRAWN = "stratified by class"  # how the images of a limit are chosen
EvaluatedSplit = Literal["test", "val"]


@dataclass(frozen=True)
class Request:
    """One evaluation.

    Args:
        trained: what to evaluate.
        engine: computes the metrics.
        split: which split of the data.
        limit: number of images, drawn by class; None for all.
        overwrite: replace an earlier result of the same request.
        inference: how a ProtoTree decides, None for other models.
        other_data: what is evaluated on if not the data of the run, with a ``config`` and a ``fingerprint``.
        report: write pages to look at, too, if something is explained.
    """

    trained: TrainedModel
    engine: Interpretability
    split: EvaluatedSplit = "test"
    limit: int | None = None
    overwrite: bool = False
    inference: str | None = None
    other_data: dict[str, Any] | None = None
    report: bool = False

    @property
    def identity(self) -> dict[str, Any]:
        """Entries that tell two evaluations of a run apart."""
        return {
            **self.trained.identity,
            "split": self.split,
            "limit": self.limit,
            "suite": self.engine.requested,
            "seed": self.engine.seed,
            "other_data": self.other_data,
        }

    def is_done(self, earlier: dict[str, Any]) -> bool:
        """Whether an earlier result is the answer to this request."""
        wanted = {"inference": self.inference} | self.identity | self.engine.settings
        wanted |= {"drawn": DRAWN} if self.limit else {}
        found = earlier | earlier.get("protocol", {})
        if self.engine.memory_budget is None:
            device = found.get("device")
            wanted["memory_budget"] = default_budget(device) if device else FORMER_BUDGET
        for told in (wanted, found):
            told["other_data"] = (told.get("other_data") or {}).get("fingerprint")  # wherever the data lies
        return {name: found.get(name) for name in wanted} == wanted

    def folder(self) -> Path:
        """The folder of the result: ``evaluation``, or a folder of its own if another result already lies there.

        A result on other data than the run's always has a folder of its own.

        Raises:
            FileExistsError: if this very evaluation has been done and ``overwrite`` is not set.
        """
        first, checkpoint = self.trained.run_folder / "evaluation", self.trained.checkpoint
        decides = checkpoint["hyper_parameters"].get("inference")
        usual = {"seed": 0, "limit": None, "inference": decides} | Interpretability().settings
        named = {"seed": self.engine.seed, "limit": self.limit, "inference": self.inference} | self.engine.settings
        changed = [f"{name}={value}" for name, value in named.items() if value != usual[name]]
        if self.other_data:
            changed.insert(0, f"data={Path(self.other_data['config']).stem}-{self.other_data['fingerprint'][:8]}")
        step = checkpoint["global_step"]
        words = "-".join([self.trained.path.stem, f"step{step}", self.split, *self.engine.requested, *changed])
        name = re.sub(r"[^\w.=-]+", ".", words).strip(".")
        if len(name) > LONGEST_NAME:
            name = f"{name[:LONGEST_NAME]}-{hashlib.sha256(words.encode()).hexdigest()[:8]}"
        own = first / name
        for folder in (own,) if self.other_data else (first, own):
            if not (folder / "metrics.json").exists():
                return folder
            earlier = read_content(folder / "metrics.json")
            if self.is_done(earlier):
                if self.overwrite:
                    return folder
                raise FileExistsError(
                    f"Expected no earlier result, but {folder / 'metrics.json'} holds this evaluation already. "
                    "`evaluate.py run` with `--overwrite true` replaces it."
                )
        raise FileExistsError(f"Expected {own} to be free, but it holds another result. Move it away.")
