"""Photos of the user, files and folders of them, as a model sees the data it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning import LightningDataModule
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch.utils.data import default_collate

from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.dataset import ExactSampler, Mapped
from protometry.datamodules.matching import plain_name, some
from protometry.datamodules.photos.folders import images_below
from protometry.datamodules.photos.one_photo import Framing, PhotoLike, read_photo, shows_crops
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.workers import WorkerLoader
from protometry.run_folder.command_line.user_path import user_path

UNKNOWN = -1  # the label of a photo in no folder of a class


class PhotoFiles(LightningDataModule):
    """Photos for ``Trainer.predict``, in batches that also say which of them cannot be read.

    A photo below a folder has the class of the first folder on its way down that is named as a class, apart from
    number, case and separators.

    Args:
        photos: image files, and folders whose images are all taken, including those in subfolders; from Python, also
            what else :func:`read_photo` takes.
        datamodule: whose evaluation transform, batch size and workers are used; its files are not read.
        class_names: of the K logits; none if no folder can say what a photo shows.
        crop: as in :func:`read_photo`, of every photo.
        max_pixels: as in :func:`read_photo`.

    Raises:
        FileNotFoundError: if a folder holds no image.
        TypeError: if ``photos`` is a single photo.
    """

    def __init__(
        self,
        photos: Sequence[PhotoLike],
        datamodule: ImageDataModule,
        class_names: Sequence[str] = (),
        crop: Sequence[int] | None = None,
        max_pixels: int | None = None,
    ) -> None:
        super().__init__()
        if isinstance(photos, str | bytes | Mapping):
            raise TypeError(
                f"Expected argument `photos` to be a list, but got one {type(photos).__name__}: put it into a list."
            )
        self.datamodule = datamodule
        self.read = partial(read_photo, datamodule=datamodule, crop=crop, max_pixels=max_pixels)
        if crop is None and shows_crops(datamodule):
            rank_zero_warn(
                "The model was trained on crops and sees photos whole: give them one at a time with `--crop X Y WIDTH "
                "HEIGHT`."
            )
        number = {plain_name(name): index for index, name in enumerate(class_names)}
        number |= {name: index for index, name in enumerate(class_names)}  # where two differ in what is left out
        self.photos: dict[str, PhotoLike] = {}  # by path, or number
        self.labels: dict[str, int] = {}
        elsewhere: list[str] = []
        for position, photo in enumerate(photos, start=1):
            for name, file, folders in files_of(photo, f"photo {position}"):
                matches = [number.get(folder, number.get(plain_name(folder), UNKNOWN)) for folder in folders]
                self.labels[name] = next((label for label in matches if label != UNKNOWN), UNKNOWN)
                self.photos[name] = file
                elsewhere += folders[:1] if self.labels[name] == UNKNOWN else ()
        if class_names and elsewhere:
            rank_zero_info(
                f"{len(elsewhere)} of {len(self.labels)} photos lie in folders that name no class of the model "
                f"({some(sorted(set(elsewhere)))}): their label stays empty."
            )

    def predict_dataloader(self) -> WorkerLoader:
        """Batches of image, ``sample_id``, ``sample_key`` and ``label``; ``unread`` says why photos are left out."""
        named = [(name, photo, self.labels[name]) for name, photo in self.photos.items()]
        photos = Mapped(partial(_sample_or_reason, self.read), named)
        rank, world_size = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        return WorkerLoader(
            photos,
            batch_size=self.datamodule.eval_batch_size,
            sampler=ExactSampler(photos, rank, world_size),
            num_workers=min(self.datamodule.num_workers, len(photos)),
            collate_fn=_collated,
        )


def read_photos(
    photos: Sequence[str], datamodule: ImageDataModule | Framing, crop: Sequence[int] | None, max_pixels: int | None
) -> tuple[list[dict[str, Any]], Callable[[], None]]:
    """Samples of photos, files and folders of them, and what warns of those that cannot be read, and then names them.

    Raises:
        FileNotFoundError: if a folder holds no image.
    """
    read: list[dict[str, Any]] = []
    unread: dict[str, str] = {}
    for name, photo, _ in [found for given in photos for found in files_of(given)]:
        try:
            read.append(read_photo(photo, datamodule, crop, max_pixels))
        except (OSError, ValueError) as error:
            unread[name] = str(error)

    def refuse() -> None:
        if len(unread) == 1 and not read:
            raise ValueError(*unread.values())
        for reason in unread.values():
            rank_zero_warn(reason)
        if unread:
            count = len(unread) + len(read)
            raise ValueError(f"Expected images, but {len(unread)} of {count} files are not: {', '.join(unread)}.")

    return read, refuse


def _sample_or_reason(
    read: Callable[[PhotoLike], dict[str, Any]], photo: tuple[str, PhotoLike, int]
) -> dict[str, Any] | str:
    """A sample of a photo with a name and a label, or the reason why there is none."""
    name, content, label = photo
    try:
        sample = read(content) | {"sample_id": name, "label": torch.tensor(label)}
        return {field: sample[field] for field in ("image", "sample_id", "sample_key", "label")}
    except (OSError, ValueError) as error:
        return str(error)


def _collated(samples: list[dict[str, Any] | str]) -> dict[str, Any]:
    """Stacked samples, if there are any, and why the others are missing."""
    read = [sample for sample in samples if not isinstance(sample, str)]
    unread = [sample for sample in samples if isinstance(sample, str)]
    return (default_collate(read) if read else {}) | {"unread": unread}


def files_of(photo: PhotoLike, number: str = "photo") -> list[tuple[str, PhotoLike, tuple[str, ...]]]:
    """A photo, or the images below a folder; each with its name and the folders on the way down to it.

    Raises:
        FileNotFoundError: if a folder holds no image.
    """
    if not isinstance(photo, str | Path):
        return [(number, photo, ())]
    path = user_path(photo)
    if not path.is_dir():
        return [(str(path), str(path), ())]
    names = images_below(path, Problems(str(path), ""))  # a name that is not UTF-8 cannot be read either
    if not names:
        raise FileNotFoundError(f"Expected {path} to hold images, but neither it nor its folders do.")
    return [(str(path / name), str(path / name), Path(name).parts[:-1]) for name in names]
