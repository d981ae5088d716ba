"""Models whose modules are named as in the authors' released code, rewritten from the published formulas.

They take normalised images and compute directly what the released code expands, so that they are to be run in float64.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import timm
import torch
from torch import Tensor, nn
from torchvision import models

K = 8  # as many as SketchBirds tiny has
SIZE = (64, 64)  # two by two cells: a single one has no focal similarity


def trunk(name: str = "resnet18", keeps_resolution: bool = False) -> tuple[nn.Module, int]:
    """A network without its classifier, and its channels; BatchNorm has statistics of its own."""
    if name == "vgg19":
        return nn.Sequential(OrderedDict(features=models.vgg19(weights=None).features)), 512
    if name == "densenet169":
        layers = OrderedDict(models.densenet169(weights=None).features.named_children())
        return moved(nn.Sequential(OrderedDict(features=nn.Sequential(layers | {"final_relu": nn.ReLU()})))), 1664
    if name == "convnext_tiny":
        net = models.convnext_tiny(weights=None)
        net.avgpool = net.classifier = nn.Identity()
        net.features[6][1].stride = (1, 1)
        return net, 768
    net = models.resnet18(weights=None)
    for stage in (net.layer3, net.layer4) if keeps_resolution else ():
        stage[0].conv1.stride = stage[0].downsample[0].stride = (1, 1)
    return moved(nn.Sequential(OrderedDict(list(net.named_children())[:-2]))), 512


def moved(net: nn.Module) -> nn.Module:
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
    return net


def distances(latent: Tensor, vectors: Tensor) -> Tensor:
    """Squared distances (B, U, h·w) of all cells (B, D, h, w) to vectors (U, D, 1, 1)."""
    return (latent.flatten(2)[:, None] - vectors.flatten(1)[None, :, :, None]).square().sum(dim=2)


def log_similarity(squared: Tensor) -> Tensor:
    return ((squared + 1) / (squared + 1e-4)).log()


class PPNet(nn.Module):
    """Chen et al. 2019."""

    def __init__(self, classes: list[int], backbone: str = "resnet18", channels: int = 6) -> None:
        super().__init__()
        self.features, inputs = trunk(backbone)
        convolutions = nn.Conv2d(inputs, channels, 1), nn.Conv2d(channels, channels, 1)
        self.add_on_layers = nn.Sequential(convolutions[0], nn.ReLU(), convolutions[1], nn.Sigmoid())
        self.prototype_vectors = nn.Parameter(torch.rand(len(classes), channels, 1, 1))
        self.ones = nn.Parameter(torch.ones(len(classes), channels, 1, 1), requires_grad=False)
        self.prototype_class_identity = nn.functional.one_hot(torch.tensor(classes), K).float()
        self.prototype_activation_function = "log"
        self.last_layer = nn.Linear(len(classes), K, bias=False)
        self.last_layer.weight.data += self.prototype_class_identity.T  # as trained: most for its own class

    def forward(self, images: Tensor) -> Tensor:
        nearest = distances(self.add_on_layers(self.features(images)), self.prototype_vectors).amin(dim=2)
        return self.last_layer(log_similarity(nearest))


class PrototypeChooser(nn.Module):
    """Rymarczyk et al. 2022, with slots as hard as its Gumbel-softmax makes them at a scale of 10,000."""

    def __init__(self, prototypes: int = 20, slots: int = 2, channels: int = 6, last_layer: bool = True) -> None:
        super().__init__()
        self.features, inputs = trunk()
        self.alfa = nn.Parameter(torch.rand(1, K, slots))
        self.proto_presence = nn.Parameter(torch.randn(K, prototypes, slots))
        self.add_on_layers = nn.Sequential(nn.Conv2d(inputs, channels, 1), nn.Sigmoid())
        self.prototype_vectors = nn.Parameter(torch.rand(prototypes, channels, 1, 1))
        self.ones = nn.Parameter(torch.ones(prototypes, channels, 1, 1), requires_grad=False)
        self.last_layer = nn.Linear(K * slots, K, bias=False) if last_layer else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        result = distances(self.add_on_layers(self.features(images)), self.prototype_vectors)
        focal = log_similarity(result.amin(dim=2)) - log_similarity(result.mean(dim=2))
        slots = focal[:, self.proto_presence.argmax(dim=1)]  # (B, K, S)
        return slots.sum(dim=2) if isinstance(self.last_layer, nn.Identity) else self.last_layer(slots.flatten(1))


class ProtoViT(nn.Module):
    """Ma et al. 2024 after its projection, which sets parts that are switched off to 0."""

    def __init__(self) -> None:
        super().__init__()
        self.features = timm.create_model("test_vit", img_size=SIZE, num_classes=0)
        self.prototype_vectors = nn.Parameter(torch.rand(2 * K, 64, 3))
        self.patch_select = nn.Parameter(torch.full((1, 2 * K, 3), 200.0))
        self.patch_select.data[0, 5, 1] = -200  # the other parts of this prototype have positive similarities
        self.prototype_vectors.data[5, :, 1] = 0
        self.ones = nn.Parameter(torch.ones(2 * K, 64, 3), requires_grad=False)
        self.last_layer = nn.Linear(2 * K, K, bias=False)
        self.temp, self.radius = 100, 1

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.features.forward_features(images)
        cells = nn.functional.normalize(tokens[:, 1:] - tokens[:, :1], dim=2)
        parts = nn.functional.normalize(self.prototype_vectors, dim=1)
        scores = [torch.stack([self.score(c @ p, k) for k, p in enumerate(parts)]) for c in cells]
        return self.last_layer(torch.stack(scores))

    def score(self, cosines: Tensor, prototype: int) -> Tensor:
        """Of the cosines (h·w, P) of a prototype."""
        slots, free, near, found = (100 * self.patch_select[0, prototype]).sigmoid(), set(range(16)), set(range(16)), {}
        while len(found) < len(slots):
            pairs = [(cosines[c, p], c, p) for c in free & near for p in range(len(slots)) if p not in found]
            found_value, cell, part = max(pairs)
            found[part] = found_value
            free.remove(cell)
            near = {c for c in range(16) if max(abs(c // 4 - cell // 4), abs(c % 4 - cell % 4)) <= 1}
        return sum(slots[p] * value for p, value in found.items()) * len(slots) / slots.sum()


class NonNegLinear(nn.Module):
    def __init__(self, prototypes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(K, prototypes))
        self.normalization_multiplier = nn.Parameter(torch.tensor([2.5]))


class PIPNet(nn.Module):
    """Nauta et al. 2023, at inference."""

    def __init__(self, backbone: str = "resnet18", features: int = 0, threshold: float = 0.1) -> None:
        super().__init__()
        self.threshold = threshold
        self._net, inputs = trunk(backbone, keeps_resolution=True)
        convolution = [nn.Conv2d(inputs, features, 1)] if features else []
        self._add_on = nn.Sequential(*convolution, nn.Softmax(dim=1))
        self._classification = NonNegLinear(features or inputs)
        self._multiplier = self._classification.normalization_multiplier
        for parameter in self._add_on.parameters():
            nn.init.normal_(parameter, std=0.1)  # some prototypes are above the threshold of 0.1, others below

    def forward(self, images: Tensor) -> Tensor:
        pooled = self._add_on(self._net(images)).amax(dim=(2, 3))
        return torch.where(pooled < self.threshold, 0, pooled) @ self._classification.weight.relu().T


class Node(nn.Module):
    """A leaf without children, else a branch; ``index`` counts in pre-order."""

    def __init__(self, index: int, depth: int) -> None:
        super().__init__()
        self.index = index
        if depth:
            self.l, self.r = Node(index + 1, depth - 1), Node(index + 2**depth, depth - 1)
        else:
            self._dist_params = nn.Parameter(3 * torch.rand(K))

    def branches(self) -> list[Node]:
        return [self, *self.l.branches(), *self.r.branches()] if hasattr(self, "l") else []

    def without(self, leaves: set[int]) -> Node | None:
        """The tree after these leaves are cut: a branch that loses a child gives its place to the other."""
        if not hasattr(self, "l"):
            return None if self.index in leaves else self
        left, right = self.l.without(leaves), self.r.without(leaves)
        if left is not None and right is not None:
            self.l, self.r = left, right
            return self
        return right if left is None else left

    def predict(self, present: Callable[[Node], Tensor], share: Callable[[Tensor], Tensor]) -> Tensor:
        if not hasattr(self, "l"):
            return share(self._dist_params)
        right = present(self)[:, None]
        return (1 - right) * self.l.predict(present, share) + right * self.r.predict(present, share)


class ProtoTree(nn.Module):
    """Nauta et al. 2021: the logarithm of the mixture of leaves; prototypes in an order of their own."""

    def __init__(self, depth: int = 3, channels: int = 6, kontschieder: bool = False, cut: set[int] = frozenset()):
        super().__init__()
        self._root = Node(0, depth)
        branches = self._root.branches()
        self._out_map = dict(zip(branches, torch.randperm(len(branches)).tolist(), strict=True))
        self._root = self._root.without(set(cut))
        self._kontschieder_normalization = kontschieder
        self._net, inputs = trunk()
        self._add_on = nn.Sequential(nn.Conv2d(inputs, channels, 1, bias=False), nn.Sigmoid())
        self.prototype_layer = nn.Module()
        self.prototype_layer.prototype_vectors = nn.Parameter(torch.rand(len(branches), channels, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        result = distances(self._add_on(self._net(images)), self.prototype_layer.prototype_vectors)
        present = (-result.amin(dim=2).sqrt()).exp()
        shares = (lambda p: p / p.sum()) if self._kontschieder_normalization else (lambda p: p.softmax(dim=0))
        return self._root.predict(lambda node: present[:, self._out_map[node]], shares).log()
