"""The format of ProtoPool in the released code of Rymarczyk et al. 2022."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.lightning_modules.protopool import ProtoPool
from protometry.lightning_modules.released.format import Contents, Format


def _hardened(model: ProtoPool, contents: Contents, form: Format) -> dict[str, Tensor]:
    """Prototypes without a slot are inactive; without a last layer, the released code sums the slots of a class."""
    tensors = {"linear.weight": model.slot_owner.T.float()} | contents.tensors
    presence = tensors.get("slots.logits")
    if presence is not None and presence.shape == model.slots.logits.shape:
        assigned = presence.argmax(dim=1).flatten()
        tensors["prototypes.active"] = torch.zeros(presence.shape[1], dtype=torch.bool).index_fill(0, assigned, True)
    return tensors


FORMAT = Format(
    code="released code of Rymarczyk et al. 2022",
    names={
        "features.": "backbone.net.",
        "add_on_layers.": "addon.",
        "prototype_vectors": "prototypes.vectors",
        "proto_presence": "slots.logits",
        "last_layer.": "linear.",
    },
    arguments={
        "backbone.strides": ("standard",),
        "addon": ("sigmoid",),
        "similarity": ("l2_log",),
        "epsilon": (1e-4,),
        "focal": ("distance",),
    },
    sizes=("backbone.name", "num_prototypes", "slots_per_class", "prototype_channels"),
    ignored=("ones", "alfa"),  # the kernel of a convolution that sums squares, and a threshold that nothing reads
    implied={"prototype_activation_function": "log"},
    adapt=_hardened,
)
