"""The folder of an exported model: its weights, a description of everything else, and photos of its units.

===============================  ======================================================================================
``model.safetensors``            all parameters and buffers under their names in the state dict, each in its own type
``model.json``                   a :class:`ModelDescription`
``training_images.safetensors``  ``embeddings`` of up to 1,000 training images, to tell photos that are unlike them
``units/``                       photos that units stand for, each once, in the pixels that the model sees (PNG)
``README.md``                    a model card for people
===============================  ======================================================================================
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from torch import Tensor

from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.checkpoint_schema import is_bounded
from protometry.run_folder.command_line.first_look import MODEL_FILE
from protometry.run_folder.command_line.former_names import with_current_names
from protometry.run_folder.command_line.user_path import regular
from protometry.run_folder.schema import Record, check_content, read_json
from protometry.run_folder.unreadable import why_unreadable

WEIGHTS, PHOTOS, CARD, SCHEMA = "model.safetensors", "units", "README.md", 1
EMBEDDINGS, MOST_IMAGES = "training_images.safetensors", 1000
REMEDY = "Export the model again."
LARGEST = 32_000_000  # bytes of the description; 10,000 units take 5 MB
Pixel = Annotated[int, Field(ge=0)]
Side = Annotated[int, Field(ge=1, le=4096)]
Name = Annotated[str, Field(max_length=1000, pattern=r"^[^\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]*$")]
BoxEdges = Annotated[list[Pixel], Field(min_length=4, max_length=4)]


class ModelClass(Record):
    """The class of the model and its arguments; pretrained weights among them are not read."""

    class_path: Name
    init_args: dict[str, Any]


class StoredSource(Record):
    """The photo that stands for a unit.

    Args:
        photo: name of its file in ``units``.
        box: inclusive pixels (x0, y0, x1, y1) of that photo; None for a flat map.
        parts: of a unit with several, the boxes that ``box`` is around.
        crop: ``box``, grown to what pages show of it.
        sample_id: of the photo in the data of the run.
        part: in the box, where known.
        origin: how the photo was found.
        stale: whether the prototype has changed since it was projected onto the photo.
    """

    unit: Pixel
    photo: Annotated[str, Field(pattern=r"^[\w-]+\.png$")]
    box: BoxEdges | None
    parts: Annotated[list[BoxEdges], Field(max_length=100)] = Field(default_factory=list)
    crop: BoxEdges | None
    sample_id: Name
    class_name: Name
    part: Name | None
    origin: Name
    stale: bool


class Accuracy(Record):
    """Of the preferred evaluation of the checkpoint: a fraction, its 95 % interval and the number of images."""

    value: float | None
    ci95: Annotated[list[float | None], Field(min_length=2, max_length=2)]
    n: Pixel
    split: Name


class ModelDescription(Record):
    """The content of ``model.json``.

    Args:
        version: of the package that wrote it.
        state: what the model stores besides tensors, by name in the state dict.
        decision_threshold: of the logits of a multilabel model.
        image_size: height and width in pixels.
        geometry: how a photo becomes an image of that size; ``variant`` and ``crop`` likewise, see
            :class:`protometry.datamodules.transforms.crop_and_augment.PhotoTransform`.
        explainer: that drew the boxes, with its options.
        similarities: of versions that stored no embeddings of training images; not read.
        sources: of the active units; None where no photos stand for them, as for classes.
        accuracy: None if the checkpoint was not evaluated.
    """

    format: Annotated[Literal[1], Field(alias="schema")]
    version: Name | None
    model: ModelClass
    state: dict[str, dict[str, Any]]
    class_names: Annotated[list[Name], Field(min_length=2)]
    decision_threshold: float | None
    image_size: Annotated[list[Side], Field(min_length=2, max_length=2)]
    geometry: Name
    variant: Name
    crop: Literal["none", "box"]
    concept_names: list[Name]
    part_names: list[Name]
    explainer: Name
    similarities: list[float] | None = None
    sources: list[StoredSource] | None
    accuracy: Accuracy | None

    @model_validator(mode="after")
    def _agrees(self) -> ModelDescription:
        """Refuse lists that contradict the arguments of the model, and boxes that leave its images."""
        arguments, (height, width) = self.model.init_args, self.image_size
        for name, actual in (("num_classes", len(self.class_names)), ("image_size", self.image_size)):
            if (stated := arguments.get(name, actual)) != actual:
                listed = "the number of `class_names`" if name == "num_classes" else "`image_size`"
                raise ValueError(f"`model.init_args.{name}` is {stated!r:.60} and {listed} {actual}")
        for source in self.sources or ():
            for x0, y0, x1, y1 in filter(None, (source.box, source.crop, *source.parts)):
                if not (x0 <= x1 < width and y0 <= y1 < height):
                    raise ValueError(
                        f"a box of unit {source.unit}, {x0} {y0} {x1} {y1}, is none in an image of {height}x{width}"
                    )
        return self


def read_description(folder: Path) -> ModelDescription:
    """What the folder of a model says of it.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if its content is damaged, or of another version.
    """
    content = read_json(folder / MODEL_FILE, REMEDY, LARGEST)
    if not (isinstance(content, dict) and is_bounded(content)):
        raise ValueError(f"Expected {folder / MODEL_FILE} to describe a model, but got other content. {REMEDY}")
    described: ModelDescription = check_content(ModelDescription, content, folder / MODEL_FILE, REMEDY)
    return described


def read_exported(folder: Path) -> dict[str, Any]:
    """The model in the folder, as checkpoints have it: ``state_dict`` and ``hyper_parameters``.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if the content of one is damaged.
    """
    described = read_description(folder)
    state = {**_read_tensors(folder / WEIGHTS, "weights"), **described.state}
    stored = {"_class_path": described.model.class_path, **described.model.init_args}
    return {"state_dict": state, "hyper_parameters": with_current_names(stored)}


def read_embeddings(folder: Path) -> Tensor | None:
    """``(n, D)``, what the model makes of n training images; None if the folder does not say.

    Raises:
        ValueError: if the file is damaged.
    """
    file = folder / EMBEDDINGS
    if not file.exists():
        return None
    embeddings: Tensor | None = _read_tensors(file, "embeddings").get("embeddings")
    got = "none" if embeddings is None else f"{tuple(embeddings.shape)} {embeddings.dtype}"
    fits = embeddings is not None and embeddings.ndim == 2 and embeddings.is_floating_point()
    if embeddings is None or not (fits and 1 <= len(embeddings) <= MOST_IMAGES and embeddings.isfinite().all()):
        wanted = f"finite `embeddings` (n, D) of up to {MOST_IMAGES} images"
        raise ValueError(f"Expected {file} to hold {wanted}, but got {got}. {REMEDY}")
    return embeddings


def _read_tensors(file: Path, what: str) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(regular(file)))
    except (SafetensorError, ValueError) as error:
        said = why_unreadable(file, error) if file.is_file() else error
        raise ValueError(f"Expected {file} to hold {what}, but {said}. {REMEDY}") from error


def write_exported(
    folder: Path, state: Mapping[str, Any], description: Mapping[str, Any], embeddings: Tensor | None = None
) -> None:
    """Write weights, description and embeddings; what is no tensor in ``state`` goes into the description.

    Raises:
        ValueError: if the description is not strict JSON.
    """
    from safetensors.torch import save

    tensors = {name: value.detach().cpu().clone() for name, value in state.items() if isinstance(value, Tensor)}
    others = {name: value for name, value in state.items() if name not in tensors}
    content = {"schema": SCHEMA, **description, "state": others}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    check_content(ModelDescription, json.loads(text), folder / MODEL_FILE, "")
    write_atomic(folder / WEIGHTS, save({name: value.contiguous() for name, value in tensors.items()}))
    if embeddings is not None:
        write_atomic(folder / EMBEDDINGS, save({"embeddings": embeddings}))
    write_atomic(folder / MODEL_FILE, text + "\n")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder that gets its name when it is complete, and is removed after an error.

    Raises:
        FileExistsError: if there is a file of that name, or a folder that is not empty.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"Expected {path} to be a new or an empty folder, but it holds files. Name another one.")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        unfinished.chmod(0o755)
        yield unfinished
        unfinished.replace(path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
