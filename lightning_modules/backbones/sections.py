"""Sections of a backbone, for schedules that train late sections sooner or faster than early ones."""

from __future__ import annotations

from torch import nn

from protometry.lightning_modules.backbones.backbone import Backbone, BackboneName

# the first parameters of backbone_early, backbone and backbone_last; all before them are the stem
SECTION_STARTS: dict[BackboneName, tuple[str, str, str]] = {
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
    block of the last stage; ours elsewhere.

    Returns:
        ``stem``, ``backbone_early``, ``backbone`` and ``backbone_last``, each parameter in one; empty ones left out.
    """
    starts = dict(zip(SECTION_STARTS[backbone.name], ("backbone_early", "backbone", "backbone_last"), strict=True))
    sections: dict[str, list[nn.Parameter]] = {}
    section = "stem"
    for parameter_name, parameter in backbone.net.named_parameters():
        section = next((name for start, name in starts.items() if parameter_name.startswith(f"{start}.")), section)
        sections.setdefault(section, []).append(parameter)
    return sections
