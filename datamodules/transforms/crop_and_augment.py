"""Transforms of photos to the input size: deterministic geometry for evaluation, random presets for training.

One :class:`.Placement` moves a photo's image, mask, label map, points and box. Data sets ask for
the pixels of each photo (:meth:`PhotoTransform.to_frame`) and move the points and boxes of a batch at once. The random
steps are a strict albumentations ``Compose`` (an unknown argument is an error there, and a silent default elsewhere),
whose randomness comes from a seed per sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from protometry.datamodules.arguments import check_choice
from protometry.datamodules.transforms.placement import (
    GeometryPreset,
    Placement,
    ResizeFilter,
    place,
    placed_boxes,
    placed_points,
)

cv2.setNumThreads(0)  # loader workers are the parallelism; OpenCV's own threads only get in their way

Crop = Literal["none", "box"]
Augmentation = Literal["none", "geometric", "photometric", "geometric_photometric"]
PhotoVariant = Literal["paper", "quanproto"]
BOX_END = np.array([0, 0, 1, 1])  # from inclusive to end-exclusive pixels


@dataclass(frozen=True)
class Photo:
    """An image and what is annotated on it, all in the same pixels.

    Args:
        image: ``(H, W, 3)`` uint8 RGB.
        points: ``(N, 2)`` float (x, y); pixel (floor x, floor y).
        box: ``(4,)`` float inclusive pixels (x0, y0, x1, y1).
    """

    image: NDArray[np.uint8]
    object_mask: NDArray[np.bool_] | None = None
    label_map: NDArray[np.uint8] | None = None
    points: NDArray[np.float32] | None = None
    visible: NDArray[np.bool_] | None = None
    box: NDArray[np.float32] | None = None


class PhotoTransform:
    """Optional box crop, geometry preset, then optional augmentation.

    Horizontal flips and warps only occur in augmentations, which return the image alone. Colour jitter runs on uint8:
    each of its steps rounds to 1/255, which costs less than half the time of float32.

    Args:
        size: ``(H, W)`` pixels of the result.
        geometry: ``stretch`` resizes to the frame; ``letterbox`` fits the photo inside and pads with black;
            ``shorter_crop`` fills the frame and cuts the centre; ``center_crop`` cuts the centre without resizing.
        crop: ``box`` cuts the photo to its box first.
        variant: ``paper`` averages when shrinking; ``quanproto`` samples, and warps as :func:`augmentation_steps` says,
            as the published code of Schlinge et al. 2025 does.
        augmentation: ``geometric`` (flip, perspective, affine), ``photometric`` (colour jitter), both, or ``none``.

    Raises:
        ValueError: if a name is unknown.

    Example:
        >>> photo = Photo(np.zeros((100, 200, 3), np.uint8), box=np.array([50, 20, 99, 59], np.float32))
        >>> PhotoTransform((50, 50))(photo).box
        array([12., 10., 24., 29.], dtype=float32)
    """

    def __init__(
        self,
        size: tuple[int, int] = (224, 224),
        geometry: GeometryPreset = "stretch",
        crop: Crop = "none",
        variant: PhotoVariant = "paper",
        augmentation: Augmentation = "none",
    ) -> None:
        check_choice("geometry", geometry, get_args(GeometryPreset))
        check_choice("crop", crop, get_args(Crop))
        check_choice("variant", variant, get_args(PhotoVariant))
        check_choice("augmentation", augmentation, get_args(Augmentation))
        self.size, self.geometry, self.crop = size, geometry, crop
        self.resize_filter: ResizeFilter = "area" if variant == "paper" else "linear"
        self.random = augmentation != "none"
        self._compose = composed(augmentation_steps(augmentation, variant)) if self.random else None

    def __call__(self, photo: Photo, seed: int | None = None) -> Photo:
        """Transform one photo.

        Returns:
            The photo in the model's frame: points outside it are invisible and hold (0, 0), the box is clipped. Only
            the image if there is an augmentation.

        Raises:
            ValueError: if ``crop="box"`` and there is no box, nothing of a box is left in the frame, or an augmentation
                gets no seed.
        """
        framed, placement = self.to_frame(photo, seed)
        if self.random:
            return framed
        if photo.box is not None:
            framed = replace(framed, box=placed_boxes(photo.box[None], [placement])[0])
        if photo.points is not None:
            visible = None if photo.visible is None else photo.visible[None]
            points, seen = placed_points(photo.points[None], visible, [placement])
            framed = replace(framed, points=points[0], visible=seen[0])
        return framed

    def to_frame(
        self, photo: Photo, seed: int | None = None, image: NDArray[np.uint8] | None = None
    ) -> tuple[Photo, Placement]:
        """The pixels of a photo in the frame, and where they lie; box and points stay as they are on the photo.

        Args:
            photo: as it is in its file.
            seed: of the augmentation.
            image: what :meth:`framed` made of the photo, whose own pixels then do not matter.

        Raises:
            ValueError: if ``crop="box"`` and there is no box, a mask or label map is not as large as the photo, or an
                augmentation gets no seed.
        """
        placement = self._placement(photo)
        image = placement.image(photo.image, self.resize_filter) if image is None else image
        if self._compose is not None:
            if seed is None:
                raise ValueError("Expected argument `seed` to be an integer because augmentation is on, but got None.")
            self._compose.set_random_seed(seed)
            return Photo(self._compose(image=image)["image"]), placement
        height, width = photo.image.shape[:2]
        mask, codes = photo.object_mask, photo.label_map
        for name, labels in (("object mask", mask), ("label map", codes)):
            if labels is not None and labels.shape != (height, width):
                raise ValueError(
                    f"Expected the {name} to be as large as the photo, {width}x{height} pixels (width x height), but "
                    f"got {labels.shape[1]}x{labels.shape[0]}."
                )
        if mask is not None:
            mask = placement.labels(mask.view(np.uint8)).view(np.bool_)
        if codes is not None:
            codes = placement.labels(codes)
        return Photo(image, mask, codes, photo.points, photo.visible, photo.box), placement

    def framed(self, photo: Photo) -> NDArray[np.uint8]:
        """The pixels of a photo in the frame ``(H, W, 3)`` before any augmentation.

        Raises:
            ValueError: if ``crop="box"`` and there is no box.
        """
        return self._placement(photo).image(photo.image, self.resize_filter)

    def _placement(self, photo: Photo) -> Placement:
        height, width = photo.image.shape[:2]
        top, left, bottom, right = 0, 0, height, width
        if self.crop == "box":
            if photo.box is None:
                raise ValueError(
                    "Expected the photo to have a box because `crop` is 'box', but it has none. Use `crop: none`."
                )
            left, top, right, bottom = (int(edge) for edge in photo.box + BOX_END)
        return place((bottom - top, right - left), self.size, self.geometry).moved(top, left)


def composed(steps: list[Any]) -> Any:
    """Random steps as one function of ``image``, whose unknown arguments are an error."""
    from albumentations import Compose  # takes half a second to import, which a single photo does without

    return Compose(steps, strict=True)


def augmentation_steps(augmentation: Augmentation, variant: PhotoVariant = "paper") -> list[Any]:
    """The random steps of a training preset, applied after the resize (cheaper, and the same for all photo sizes).

    Schlinge et al. 2025: ``geometric`` is a flip with probability .5, a perspective of scale 0-.05 and an affine of
    scale .85-1.15, translation, rotation and shear up to .15, 15 and 15 degrees; ``photometric`` is colour jitter of
    .85-1.15 with a hue of .025.

    Args:
        augmentation: see :class:`PhotoTransform`.
        variant: ``paper`` has the perspective with probability .5, and repeats the edge of the photo beyond it;
            ``quanproto``, as their published code, always has it, and repeats the whole photo.
    """
    import albumentations as A

    border_mode, probability = (cv2.BORDER_WRAP, 1.0) if variant == "quanproto" else (cv2.BORDER_REPLICATE, 0.5)
    geometric = [
        A.HorizontalFlip(p=0.5),
        A.Perspective(scale=(0.0, 0.05), border_mode=border_mode, p=probability),
        A.Affine(
            scale=(0.85, 1.15),
            translate_percent=(-0.15, 0.15),
            rotate=(-15.0, 15.0),
            shear=(-15.0, 15.0),
            rotate_method="ellipse",
            border_mode=border_mode,
            p=1.0,
        ),
    ]
    factors = (0.85, 1.15)
    photometric = [
        A.ColorJitter(brightness=factors, contrast=factors, saturation=factors, hue=(-0.025, 0.025), p=1.0),
    ]
    presets: dict[str, list[Any]] = {"none": [], "geometric": geometric, "photometric": photometric}
    return presets.get(augmentation, geometric + photometric)


def geometric_part(augmentation: Augmentation) -> Augmentation:
    """What two views of one training image share: the augmentation without its colours.

    Example:
        >>> geometric_part("geometric_photometric"), geometric_part("photometric")
        ('geometric', 'none')
    """
    return "geometric" if augmentation.startswith("geometric") else "none"


def transform_seed(seed: int, epoch: int, sample_key: int, *view: int) -> int:
    """The seed of one sample's augmentation in one epoch, the same in every process and after a resume.

    What is drawn several times has a number as ``view``.

    Example:
        >>> transform_seed(0, 1, 5) == transform_seed(0, 1, 5), transform_seed(0, 1, 5) == transform_seed(0, 2, 5)
        (True, False)
    """
    return int(np.random.SeedSequence((seed, epoch, sample_key), spawn_key=view).generate_state(1)[0])
