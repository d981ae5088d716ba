"""Features of a frozen backbone, kept on the disk and found again by the pixels of an image."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from protometry.lightning_modules.backbones.output import in_evaluation_mode
from protometry.run_folder.kept_rows import KeptRows

_PLAIN = (bool, int, float, complex, str, torch.dtype)


class KeptFeatures:
    """Features ``(D, h, w)`` of images as float32 in :class:`.KeptRows`, for one network as it is now.

    An image is known by the digest of the pixels that enter the network, so that another photo, transform or
    augmentation has no features here. A network has a folder for its structure and settings, weights, image size, the
    versions of PyTorch, torchvision and timm, and the bits of the features that it makes of noise: other code has a
    folder of its own, and so may another kind of processor, or one thread instead of several.

    Args:
        backbone: from images ``(B, 3, H, W)`` to features ``(B, D, h, w)`` that depend on the pixels only, in the mode
            in which it is and in evaluation.
        cache: the folder that holds one folder per network and image size.
        image_size: ``(H, W)`` pixels.

    Example:
        >>> import tempfile
        >>> backbone, images = nn.Conv2d(3, 8, 4, stride=4), torch.rand(2, 3, 16, 16)
        >>> kept = KeptFeatures(backbone, Path(tempfile.mkdtemp()), (16, 16))
        >>> kept.keep(images, backbone)
        2
        >>> torch.equal(kept.find(images), backbone(images)), kept.find(images + 0.01)
        (True, None)
    """

    def __init__(self, backbone: nn.Module, cache: Path, image_size: tuple[int, int]) -> None:
        self._backbone = backbone
        noise = torch.rand(1, 3, *image_size, generator=torch.Generator().manual_seed(0))
        probe = features_in_evaluation(backbone, noise.to(next(backbone.parameters()).device)).float().cpu()
        self._channels_last = probe.stride(1) == 1
        probe = self._as_stored(probe)
        self._shape = torch.Size(probe.shape[1:])
        self._settings, self._hooks, self._training = _settings(backbone), _hooks(backbone), _in_training(backbone)
        self._weights = {name: tensor.detach().clone() for name, tensor in _tensors(backbone).items()}
        code = [package.version for name in ("torch", "torchvision", "timm") for package in distributions(name=name)]
        digest = hashlib.sha256(repr((repr(backbone), self._settings, image_size, code)).encode())
        for name, tensor in (*self._weights.items(), ("probe", probe)):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(_bytes(tensor))
        folder = cache / "features" / digest.hexdigest()[:16]
        self._rows = KeptRows(folder, 4 * self._shape.numel(), "Features")

    @property
    def folder(self) -> Path:
        """Where they lie."""
        return self._rows.folder

    @property
    def bytes_per_image(self) -> int:
        """Size of the features of one image."""
        return self._rows.row_bytes

    def __len__(self) -> int:
        return len(self._rows)

    def reload(self) -> None:
        """Find what all processes have kept so far."""
        self._rows.reload()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def find(self, images: Tensor) -> Tensor | None:
        """The features of images ``(B, 3, H, W)``, or None unless all are kept and nothing but their values is wanted.

        Gradients of pixels, a recording of the operations or half precision need the network itself, and so does a
        network that has changed: in a weight, a setting, a hook, or a module that is now in training mode.
        """
        recorded = torch._C._len_torch_function_stack() > 0
        if recorded or images.requires_grad or torch.is_autocast_enabled(images.device.type):
            return None
        digests = _digests_of_images(images)
        if not all(digest in self._rows for digest in digests) or self._has_changed():
            return None
        features = torch.empty(len(digests), *self._shape)
        if not all(map(self._rows.read, digests, map(_memory, features))):
            return None
        features = features.to(images.device, non_blocking=True)
        return features.permute(0, 3, 1, 2) if self._channels_last else features

    def keep(self, images: Tensor, compute: Callable[[Tensor], Tensor]) -> int:
        """Keep the features that ``compute`` makes of those images ``(B, 3, H, W)`` that have none, or damaged ones.

        Returns:
            How many images have features now that had none before.
        """
        row = torch.empty(self._shape)
        places = {digest: place for place, digest in enumerate(_digests_of_images(images))}
        new = {digest: place for digest, place in places.items() if not self._rows.read(digest, _memory(row))}
        if not new or not self._rows.writable:
            return 0
        features = self._as_stored(compute(images[list(new.values())]).detach().float().cpu()).contiguous()
        before = len(self)
        self._rows.keep(zip(new, map(_memory, features), strict=True), sync=True)
        return len(self) - before

    def _as_stored(self, features: Tensor) -> Tensor:
        return features.permute(0, 2, 3, 1) if self._channels_last else features

    def _has_changed(self) -> bool:
        """Whether the network may now make other features.

        The values of all weights are compared: no counter tells of one that is written through ``data``.
        """
        net, before = self._backbone, self._weights
        if (_settings(net), _hooks(net)) != (self._settings, self._hooks) or not _in_training(net) <= self._training:
            return True
        now = _tensors(net)
        return now.keys() != before.keys() or not all(_equal(now[name], before[name]) for name in now)


def features_in_evaluation(backbone: nn.Module, images: Tensor) -> Tensor:
    """Features ``(B, D, h, w)`` in evaluation mode, without gradients."""
    with in_evaluation_mode(backbone), torch.no_grad():
        features: Tensor = backbone(images)
    return features


def _tensors(net: nn.Module) -> dict[str, Tensor]:
    """Parameters, buffers and what modules hold beside them."""
    held = ((f"{path}.{name}", value) for path, module in net.named_modules() for name, value in vars(module).items())
    others = ((name, value) for name, value in held if isinstance(value, Tensor))
    return dict(chain(net.named_parameters(remove_duplicate=False), net.named_buffers(remove_duplicate=False), others))


def _equal(now: Tensor, before: Tensor) -> bool:
    kinds = [(tensor.dtype, tensor.device, tensor.shape) for tensor in (now, before)]
    return kinds[0] == kinds[1] and torch.equal(now, before)


def _settings(net: nn.Module) -> list[str]:
    """The plain attributes of all modules, such as strides and the epsilon of a normalisation, but for their mode."""
    settings = []
    for path, module in net.named_modules():
        own = {name: x for name, x in vars(module).items() if name[0] != "_" and name != "training" and _is_plain(x)}
        settings.append(f"{path} {type(module).__qualname__} {own}")
    return settings


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, tuple | list) and all(map(_is_plain, value)))


def _hooks(net: nn.Module) -> list[Any]:
    """What modules call that is none of their parts: hooks, functions, and classes that were exchanged."""
    called = (
        (module, [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]) for module in net.modules()
    )
    return [[type(module), *hooks, *filter(inspect.isroutine, vars(module).values())] for module, hooks in called]


def _in_training(net: nn.Module) -> set[str]:
    return {path for path, module in net.named_modules() if module.training}


def _memory(tensor: Tensor) -> memoryview:
    """Of a contiguous tensor on the CPU."""
    return tensor.numpy().data


def _bytes(tensor: Tensor) -> memoryview:
    return _memory(tensor.cpu().contiguous().reshape(-1).view(torch.uint8))


def _digests_of_images(images: Tensor) -> list[bytes]:
    kind = f"{images.dtype} {tuple(images.shape[1:])}".encode()
    pixels = images.detach().cpu().contiguous()
    digests = [hashlib.sha256(kind) for _ in pixels]
    for digest, image in zip(digests, pixels, strict=True):
        digest.update(_memory(image))
    return [digest.digest() for digest in digests]
