"""The format of PIP-Net in the released code of Nauta et al. 2023."""

from __future__ import annotations

from protometry.lightning_modules.released.format import Format

FORMAT = Format(
    code="released code of Nauta et al. 2023",
    names={
        "_net.": "backbone.net.",
        "_add_on.0.": "addon.",
        "_classification.weight": "linear.weight",
        "_classification.normalization_multiplier": "exponent",
    },
    arguments={"backbone.strides": ("reduced", 13, 26)},  # does not affect shapes
    sizes=("backbone.name", "num_features"),
    ignored=("_multiplier",),  # the same parameter once more
    refused={"_classification.bias": "a bias, which ours cannot have"},
)
