"""One method of explanation as an arm of a study: which images are shown, and what of them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import torch

from protometry.datamodules import load_datamodule
from protometry.datamodules.load import match_data, read_datamodule
from protometry.evaluation.explained.scan import Scan, loaders, scan
from protometry.explanations import Explainer, GradCAM, Random, choose_explainer
from protometry.explanations.choice import description
from protometry.explanations.decision import against_others
from protometry.explanations.tree_path import TreeNode, TreeStep, grow, path
from protometry.lightning_modules import load_model
from protometry.lightning_modules.contract import DecidesByTree, InterpretableModel
from protometry.run_folder.command_line.messages import counted
from protometry.studies.bundle import SHOW_CLASS
from protometry.studies.study import Form, Rating, Similarity, TaskName
from protometry.studies.tasks import task_of
from protometry.studies.tasks.task import Task


@dataclass(frozen=True)
class Method:
    """A method of explanation.

    Args:
        id: of the arm.
        ckpt_path: checkpoint of the model.
        form: heat maps of classes, units (prototypes, concepts) with the photos they come from, the path through a
            tree, or no explanation.
        explainer: of the maps; by default Grad-CAM for heat maps, for BagNet its own maps, and for units what
            evaluations use.
        control: ``random`` maps instead of the explainer's, or units ``shuffled``: the units of the next class.
        labels: whether the names of classes are shown.
        examples: training photos of every class that are shown, 0 to 3.
        rows: most units of a class that are shown, those that contribute most to it above the mean over classes; people
            can take in about 32 (Ramaswamy et al. 2023).
        similarity: how rows are rated: on four points, alike or not, or by which of two rows is more alike.
        clarity: whether to ask how clear it is what each unit shows.
        evidence: whether score, weight and contribution of each row, or the probability of each class that has a map,
            are shown as the model sees them.
        rating: the question about rows: a rating of each (by default), nothing, or, for a path, the first decision that
            a participant disagrees with.
        data: test images other than the run's, such as harder ones: a yaml file as in configs/data. Classes are
            matched by name.
        data_root: where the data lies now, if it has moved since training; with ``data``, its root.
    """

    id: str
    ckpt_path: Path
    form: Form = "heatmap"
    explainer: Explainer | None = None
    control: Literal["random", "shuffled"] | None = None
    labels: bool = False
    examples: int = 0
    rows: int = 5
    rating: Rating = "rows"
    similarity: Similarity = "scale"
    clarity: bool = False
    evidence: bool = False
    data: Path | None = None
    data_root: str | None = None

    def check(self, task: Task) -> None:
        """Refuse what needs no model to be seen.

        Raises:
            ValueError: if a file is missing, or values do not fit each other or the task.
        """
        if not 0 <= self.examples <= 3 or self.rows < 1:
            raise self.wrong("`examples` is 0 to 3 and `rows` at least 1")
        if (self.control == "random" and self.form == "none") or (self.control == "shuffled" and self.form != "units"):
            raise self.wrong(f"the control {self.control} does not fit the form {self.form}")
        asked = self.similarity != "scale" or self.clarity
        if asked and self.form not in ("units", "tree"):
            raise self.wrong(f"the form {self.form} has no rows for `similarity` or `clarity`")
        if self.evidence and self.form == "none":
            raise self.wrong("the form none has no explanation for `evidence`")
        if self.form == "none" and task.options == 1 and not (self.labels or self.examples):
            raise self.wrong(f"the form none shows nothing of the decision to be judged: {SHOW_CLASS}")
        if self.similarity == "pairwise" and self.form == "tree":
            raise self.wrong("the nodes of a path cannot be compared in pairs")
        for file in (self.ckpt_path, self.data):
            if file is not None and not file.is_file():
                raise self.wrong(f"{file} is not a file")

    def wrong(self, why: str) -> ValueError:
        """An error that names the arm."""
        return ValueError(f"Arm {self.id} cannot be built from {self.ckpt_path}: {why}.")


class StudiedModel:
    """A method with its model, its data, and the model's outputs for all test images.

    Raises:
        ValueError: if the model or the data do not allow this form of explanation.
    """

    def __init__(self, method: Method, task: TaskName, seed: int, salt: str, allow_classes: Sequence[str] = ()) -> None:
        self.method, self.task, self.seed, self.salt = method, task_of(task, method.form), seed, salt
        self.model = cast(InterpretableModel, load_model(method.ckpt_path, allow_classes=allow_classes).eval())
        changes = {"root": method.data_root} if method.data_root else {}
        self.training = load_datamodule(
            method.ckpt_path, allow_classes=allow_classes, **({} if method.data else changes)
        )
        self.training.setup("test")
        self.names, self.data = self.training.class_names, self.training
        if method.data:
            self.data = read_datamodule(method.data, self.training.image_size, **changes)
            self.data.setup("test")
            match_data(self.data, self.names, "test", method.data)
        self.units = self.model.units()
        if method.form == "units" and self.units.kind == "class":
            raise self.wrong("the units of the model are its classes: use the form heatmap")
        if method.form == "units" and self.units.weight is None:
            raise self.wrong("the units of the model have no weights for classes: for a tree, use the form tree")
        if method.form == "tree" and not isinstance(self.model, DecidesByTree):
            raise self.wrong("the model does not decide by a tree")
        if self.data.capabilities("test").multi_label is True:
            raise self.wrong("images of several classes have no single right class")
        if len(self.names) < self.task.options:
            raise self.wrong(f"there are {len(self.names)} classes, but participants choose from {self.task.options}")
        self.kind: Literal["unit", "class"] = "unit" if self._is_of_units() else "class"
        self.explainer = self._explainer()
        self.tree: TreeNode | None = grow(self.model) if isinstance(self.model, DecidesByTree) else None
        self.outputs: Scan = scan(self.model, self.data, "test")
        self.accuracy = 100 * self.outputs.correct.count(True) / len(self.outputs.sample_ids)
        if self.accuracy <= 100 / len(self.names):
            raise self.wrong(f"its accuracy of {self.accuracy:.1f} % on the test images is at the level of guessing")

    def origin(self) -> dict[str, str]:
        """Model, SHA-256 of its checkpoint and of the test images with their ids and classes, and the explainer."""
        data = hashlib.sha256()
        for name, labels in zip(self.outputs.sample_ids, self.outputs.labels, strict=True):
            data.update(f"{name} {labels}\n".encode())
        with loaders(self.data, "test", None) as loader:
            for batch in loader:
                data.update(batch["image"].mul(255).round().byte().numpy().tobytes())
        return {
            "model": type(self.model).__name__,
            "checkpoint": hashlib.sha256(self.method.ckpt_path.read_bytes()).hexdigest(),
            "data": data.hexdigest(),
            "explainer": "" if self.method.form == "none" else description(self.explainer),
        }

    def wrong(self, why: str) -> ValueError:
        """An error that names the arm."""
        return self.method.wrong(why)

    def _is_of_units(self) -> bool:
        return self.method.form in ("units", "tree") or (self.units.kind == "class" and self.method.explainer is None)

    def _explainer(self) -> Explainer:
        asked = self.method.explainer
        if self.method.control == "random":
            return Random(seed=self.seed)
        if asked is None:
            asked = None if self.kind == "unit" else GradCAM()
        explainer = choose_explainer(asked, self.model)
        if self.kind not in explainer.explains:
            raise self.wrong(f"the explainer {explainer.key} cannot explain a {self.kind}")
        return explainer

    def order(self, name: str) -> str:
        """The key that images and units are drawn by: unrelated to their own order, and the same for every arm."""
        return hashlib.sha256(f"{self.seed} {name}".encode()).hexdigest()

    def id(self, kind: str, name: str) -> str:
        """An id that says nothing about what it names, and that only the salt of the study leads to."""
        return kind + hashlib.sha256(f"{self.salt} {self.seed} {self.method.id} {name}".encode()).hexdigest()[:12]

    def choose(self, right: bool, number: int, without: Collection[str] = ()) -> list[int]:
        """Positions of test images with right or with wrong predictions, in random order, except those named.

        Of a tree, only those whose path leads to the predicted class and can be asked about.

        Raises:
            ValueError: if there are too few.
        """
        usable = [index for index, correct in enumerate(self.outputs.correct) if correct == right]
        kind, which = "right" if right else "wrong", ""
        if self.method.form == "tree":
            usable = [index for index in usable if self._can_be_shown(index)]
            which = f" whose path leads to the predicted class{self.task.paths}"
        free = [index for index in usable if self.outputs.sample_ids[index] not in without]
        if len(free) < number:
            raise self.wrong(
                f"it has {counted(len(usable), f'{kind} prediction')} on {len(self.outputs.correct)} images{which}, "
                f"but {number + len(usable) - len(free)} are needed"
            )
        return sorted(free, key=lambda index: self.order(self.outputs.sample_ids[index]))[:number]

    def path(self, index: int) -> tuple[list[TreeStep], TreeNode]:
        """The path of a test image through the tree."""
        assert self.tree is not None  # looked at before
        return path(self.tree, self.outputs.scores[index])

    def _can_be_shown(self, index: int) -> bool:
        steps, leaf = self.path(index)
        return leaf.label == self.outputs.predicted[index] and self.task.split(steps) is not None

    def classes(self, index: int) -> list[int]:
        """Classes that are shown of an image, the predicted one first."""
        ranked = self.outputs.logits[index].argsort(descending=True, stable=True).tolist()
        return self.task.classes(ranked, self.outputs.labels[index][0])

    def rows_of(self, index: int, label: int) -> list[int]:
        """Units that are shown for a class: those that contribute most to its logit above the mean over classes.

        Only units with a weight above 0 for the class, and above their mean weight, are shown, and of those that come
        from the same patch the one that weighs most: how many there are is a matter of the class and not of the image,
        so that their number gives nothing away.

        Raises:
            ValueError: if the class has no unit.
        """
        if self.method.control == "shuffled":
            label = (label + 1) % len(self.names)
        weight = self.units.weight
        assert weight is not None  # looked at before
        above = against_others(weight.detach().double().cpu(), multi_label=False)[label]
        known = (weight[label] > 0).cpu() & (above > 0) & self.units.active.cpu()
        if not known.any():
            raise self.wrong(f"the class {self.names[label]} has no active unit")
        for group in self.units.source.duplicates() if self.units.source else []:
            own = [unit for unit in group if known[unit]]
            known[[unit for unit in own if unit != max(own, key=above.__getitem__)]] = False
        contributions = self.outputs.scores[index] * above
        order: list[int] = contributions.masked_fill(~known, -torch.inf).argsort(descending=True, stable=True).tolist()
        return order[: min(int(known.sum()), self.method.rows)]
