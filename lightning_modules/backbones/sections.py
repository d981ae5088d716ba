"""Sections of a backbone, for schedules that train late sections sooner or faster than early ones."""

from __future__ import annotations

import re

from torch import nn

from protometry.lightning_modules.backbones.backbone import Backbone

_NAMES = ("backbone_early", "backbone", "backbone_last")
_BLOCK = re.compile(r"(?:.*?\.)?[^.]*\d(?=\.)")  # the name of a parameter up to the first part that ends in a number

# the first parameters of backbone_early, backbone and backbone_last; all before them are the stem
SECTION_STARTS: dict[str, tuple[str, str, str]] = {
    "sketch": ("block2", "block3", "block4"),
    "resnet18": ("layer2", "layer3", "layer4"),
    "resnet34": ("layer2", "layer3", "layer4"),
    "resnet50": ("layer2", "layer3", "layer4.2"),
    "bagnet9": ("layer2", "layer3", "layer4.2"),
    "bagnet17": ("layer2", "layer3", "layer4.2"),
    "bagnet33": ("layer2", "layer3", "layer4.2"),
    "mobilenet_v2": ("features.4", "features.7", "features.17"),
    "vgg19": ("features.10", "features.19", "features.34"),
    "densenet169": ("features.transition1", "features.transition2", "features.denseblock4"),
    "convnext_tiny": ("features.0", "features.6", "features.7.2"),
}


def backbone_sections(backbone: Backbone) -> dict[str, list[nn.Parameter]]:
    """The parameters of a backbone by section, in order.

    Sources: the released code of PIPNet and ProtoTree for ResNet-50 and ConvNeXt-T, whose last section is the last
    block of the last stage; ours elsewhere. Networks outside the table are divided by their own order of blocks: the
    last block, with what follows it, is the last section, and the others are three equal parts.

    Returns:
        ``stem``, ``backbone_early``, ``backbone`` and ``backbone_last``, each parameter in one; empty ones left out.
    """
    starts = SECTION_STARTS.get(backbone.name) or _starts(backbone.net)
    section_of = {start: name for start, name in zip(starts, _NAMES, strict=True) if start}
    sections: dict[str, list[nn.Parameter]] = {}
    section = "stem"
    for name, parameter in backbone.net.named_parameters():
        section = next((s for start, s in section_of.items() if f"{name}.".startswith(f"{start}.")), section)
        sections.setdefault(section, []).append(parameter)
    return sections


def blocks(net: nn.Module) -> list[str]:
    """The numbered blocks or layers of a network that hold weights, in order; its parts, if none is numbered.

    Example:
        >>> from collections import OrderedDict
        >>> stages = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
        >>> blocks(nn.Sequential(OrderedDict(stem=nn.Linear(2, 2), stages=stages, norm=nn.BatchNorm1d(2))))
        ['stages.0', 'stages.2']
    """
    names = [name for name, parameter in net.named_parameters() if parameter.dim() > 1]
    numbered = [match.group() for match in map(_BLOCK.match, names) if match]
    return list(dict.fromkeys(numbered or [name.partition(".")[0] for name in names]))


def last_blocks(net: nn.Module, count: int) -> list[nn.Parameter]:
    """The parameters of the last blocks of a network, and of what follows them.

    Example:
        >>> from collections import OrderedDict
        >>> stages = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
        >>> net = nn.Sequential(OrderedDict(stages=stages, norm=nn.BatchNorm1d(2)))
        >>> [tuple(parameter.shape) for parameter in last_blocks(net, 1)]
        [(2, 2), (2,), (2,)]
    """
    first = blocks(net)[-count]
    names = [f"{name}." for name, _ in net.named_parameters()]
    return list(net.parameters())[next(i for i, name in enumerate(names) if name.startswith(f"{first}.")) :]


def _starts(net: nn.Module) -> tuple[str, str, str]:
    """The first block of each section, empty if there is none."""
    names = blocks(net)
    if len(names) < 2:
        return "", "", next(iter(net.named_parameters()))[0]
    early, late = round(len(names[:-1]) / 3), round(2 * len(names[:-1]) / 3)
    return names[early], names[late], names[-1]
