"""The format of ProtoViT in the released code of Ma et al. 2024."""

from __future__ import annotations

from torch import Tensor

from protometry.lightning_modules.protovit import SLOT_SCALE, ProtoViT
from protometry.lightning_modules.released.format import Contents, Format


def _part_by_part(model: ProtoViT, contents: Contents, form: Format) -> dict[str, Tensor]:
    """Parts in the order of the prototypes, which the code stores as ``(U, D, P)``."""
    tensors = dict(contents.tensors)
    vectors = tensors.get("prototypes.vectors")
    if vectors is not None and vectors.ndim == 3:
        tensors["prototypes.vectors"] = vectors.transpose(1, 2).flatten(0, 1)
    return tensors


FORMAT = Format(
    code="released code of Ma et al. 2024",
    names={
        "features.": "backbone.net.model.",
        "prototype_vectors": "prototypes.vectors",
        "patch_select": "slots.logits",
        "last_layer.": "linear.",
    },
    arguments={"radius": (1,)},
    sizes=("backbone.name", "prototypes_per_class", "parts"),
    ignored=("ones",),  # not used
    implied={"temp": SLOT_SCALE, "radius": 1},
    settings='{name: getattr(model, name) for name in ("temp", "radius")}',
    adapt=_part_by_part,
)
