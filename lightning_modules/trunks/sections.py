"""Where a trunk is cut into sections, for schedules that train late sections sooner or faster than early ones."""

from __future__ import annotations

from torch import nn

from lightning_modules.trunks.trunk import Trunk, TrunkName

# the first parameters of trunk_early, trunk and trunk_last; all before them are the stem
SECTION_STARTS: dict[TrunkName, tuple[str, str, str]] = {
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


def trunk_sections(trunk: Trunk, name: TrunkName) -> dict[str, list[nn.Parameter]]:
    """The parameters of a trunk by section, in order.

    Sources: the released code of PIPNet and ProtoTree for ResNet-50 and ConvNeXt-T, whose last section is the last
    block of the last stage; ours elsewhere.

    Args:
        trunk: the trunk.
        name: which one it is.

    Returns:
        ``stem``, ``trunk_early``, ``trunk`` and ``trunk_last``, each parameter in one of them; empty ones are left out.
    """
    starts = dict(zip(SECTION_STARTS[name], ("trunk_early", "trunk", "trunk_last"), strict=True))
    sections: dict[str, list[nn.Parameter]] = {}
    section = "stem"
    for parameter_name, parameter in trunk.net.named_parameters():
        section = next((found for start, found in starts.items() if parameter_name.startswith(f"{start}.")), section)
        sections.setdefault(section, []).append(parameter)
    return sections
