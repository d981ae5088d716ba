"""Features of a frozen backbone, kept on the disk and found again by the pixels of an image."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from uuid import uuid4

import torch
from torch import Tensor, nn

from protometry.lightning_modules.backbones.output import in_evaluation_mode

_DIGEST = hashlib.sha256().digest_size
_FEATURES, _DIGESTS = ".features", ".digests"


class KeptFeatures:
    """Features ``(D, h, w)`` of images as float32 in a folder, for one network with the weights that it has now.

    An image is known by the digest of the pixels that enter the network, so that another photo, transform or
    augmentation has no features here. Every process that keeps some writes two files of its own: the features, and then
    the digests that make them count. It may therefore be killed at any time, and runs may share the folder.

    Args:
        backbone: from images ``(B, 3, H, W)`` to features ``(B, D, h, w)`` that depend on the pixels only.
        cache: the folder that holds one folder per network and image size; it is made if there is none.
        image_size: ``(H, W)`` pixels.

    Raises:
        ValueError: if the folder holds features of other code with the same structure and weights.

    Example:
        >>> import tempfile
        >>> backbone, images = nn.Conv2d(3, 8, 4, stride=4), torch.rand(2, 3, 16, 16)
        >>> kept = KeptFeatures(backbone, Path(tempfile.mkdtemp()), (16, 16))
        >>> kept.keep(images, backbone)
        >>> kept.reload()
        >>> torch.equal(kept.find(images), backbone(images)), kept.find(images + 0.01)
        (True, None)
    """

    def __init__(self, backbone: nn.Module, cache: Path, image_size: tuple[int, int]) -> None:
        self._backbone = backbone
        self._versions = self._current_versions()
        self.folder = cache / "features" / _digest_of_network(backbone, image_size)
        self.folder.mkdir(parents=True, exist_ok=True)
        noise = torch.rand(1, 3, *image_size, generator=torch.Generator().manual_seed(0))
        probe = features_in_evaluation(backbone, noise.to(next(backbone.parameters()).device)).cpu()
        self._part = uuid4().hex
        self._refuse_other_code(probe)
        self._channels_last = probe.stride(1) == 1
        self._shape = torch.Size(self._as_stored(probe).shape[1:])
        self._new: set[bytes] = set()
        self._rows: dict[bytes, tuple[Tensor, int]] = {}  # digest -> features of a file, row
        self.reload()

    @property
    def bytes_per_image(self) -> int:
        """Size of the features of one image."""
        return 4 * self._shape.numel()

    def __len__(self) -> int:
        return len(self._rows)

    def reload(self) -> None:
        """Map what all processes have kept so far."""
        self._rows = {}
        for path in sorted(self.folder.glob(f"*{_DIGESTS}")):
            digests = path.read_bytes()
            count = len(digests) // _DIGEST
            size = count * self._shape.numel()
            features = torch.from_file(str(path.with_suffix(_FEATURES)), size=size, dtype=torch.float32)
            features = features.view(count, *self._shape)
            for row in range(count):
                self._rows[digests[row * _DIGEST : (row + 1) * _DIGEST]] = features, row

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def find(self, images: Tensor) -> Tensor | None:
        """The features of images ``(B, 3, H, W)``, or None unless all are kept and nothing but their values is wanted.

        Gradients of pixels, a recording of the operations or half precision need the network itself, and so do weights
        that have changed.
        """
        recorded = torch._C._len_torch_function_stack() > 0
        if recorded or images.requires_grad or torch.is_autocast_enabled(images.device.type):
            return None
        if self._versions != self._current_versions():
            return None
        rows = [self._rows.get(digest) for digest in _digests_of_images(images)]
        found = [row for row in rows if row is not None]
        if len(found) < len(rows):
            return None
        features = torch.stack([part[row] for part, row in found]).to(images.device, non_blocking=True)
        return features.permute(0, 3, 1, 2) if self._channels_last else features

    def keep(self, images: Tensor, compute: Callable[[Tensor], Tensor]) -> None:
        """Keep the features that ``compute`` makes of those images ``(B, 3, H, W)`` that have none; see ``reload``."""
        digests = enumerate(_digests_of_images(images))
        new = {digest: row for row, digest in digests if digest not in self._rows and digest not in self._new}
        if not new:
            return
        features = self._as_stored(compute(images[list(new.values())]).detach().float().cpu()).contiguous()
        for suffix, content in ((_FEATURES, features.numpy().tobytes()), (_DIGESTS, b"".join(new))):
            with (self.folder / f"{self._part}{suffix}").open("ab") as file:
                file.write(content)
        self._new |= new.keys()

    def _as_stored(self, features: Tensor) -> Tensor:
        return features.permute(0, 2, 3, 1) if self._channels_last else features

    def _refuse_other_code(self, probe: Tensor) -> None:
        path = self.folder / "probe.pt"
        if not path.exists():
            own = path.with_name(f"{self._part}.part")  # another process may read it at the same time
            torch.save(probe, own)
            own.replace(path)
        before = torch.load(path, weights_only=True)
        slip = 1e-3 * float(probe.abs().max())
        if before.shape != probe.shape or not torch.allclose(before, probe, rtol=1e-3, atol=slip):
            raise ValueError(
                f"Expected the features in {self.folder} to come from the code of the backbone as it is now, but a "
                "network with the same structure and weights computed others. Remove the folder, or choose another "
                "`data.cache`."
            )

    def _current_versions(self) -> list[tuple[int, int]]:
        """What changes when a tensor of the network is changed or replaced."""
        return [(x.data_ptr(), 0 if x.is_inference() else x._version) for x in _tensors(self._backbone).values()]


def features_in_evaluation(backbone: nn.Module, images: Tensor) -> Tensor:
    """Features ``(B, D, h, w)`` in evaluation mode, without gradients."""
    with in_evaluation_mode(backbone), torch.no_grad():
        features: Tensor = backbone(images)
    return features


def _tensors(net: nn.Module) -> dict[str, Tensor]:
    return dict(chain(net.named_parameters(), net.named_buffers()))


def _digest_of_network(net: nn.Module, image_size: tuple[int, int]) -> str:
    """16 hexadecimal digits of structure, weights and image size."""
    digest = hashlib.sha256(f"{net!r} {image_size}".encode())
    for name, tensor in _tensors(net).items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _digests_of_images(images: Tensor) -> list[bytes]:
    return [hashlib.sha256(image.numpy()).digest() for image in images.detach().cpu().contiguous()]
