"""The format of ProtoPNet in the released code of Chen et al. 2019."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.lightning_modules.protopnet import ProtoPNet
from protometry.lightning_modules.released.format import Contents, Format


def _with_classes(model: ProtoPNet, contents: Contents, form: Format) -> dict[str, Tensor]:
    """Every prototype in a slot of its class; pruned ones become inactive."""
    if model.own_only:
        raise ValueError(
            "Expected argument `off_class_init` to be a number, because the released code has weights between a class "
            "and the prototypes of others, but got null."
        )
    tensors = dict(contents.tensors)
    vectors, weight = tensors.get("prototypes.vectors"), tensors.get("linear.weight")
    if vectors is None or weight is None or weight.shape != (model.num_classes, len(vectors)):
        return tensors
    classes = _classes(model, contents, form)
    slots, size = len(model.owner), len(model.owner) // model.num_classes
    most = int(classes.bincount().max())
    if most > size:
        raise ValueError(
            f"Expected argument `prototypes_per_class` to be at least {most}, the most that a class has in "
            f"{contents.file}, but got {size}."
        )
    earlier = (classes[:, None] == classes).tril(-1).sum(dim=1)  # prototypes of the same class before each
    slot = classes * size + earlier
    tensors["prototypes.vectors"] = vectors.new_zeros(slots, *vectors.shape[1:]).index_copy(0, slot, vectors)
    tensors["linear.weight"] = weight.new_zeros(len(weight), slots).index_copy(1, slot, weight)
    tensors["prototypes.active"] = torch.zeros(slots, dtype=torch.bool).index_fill(0, slot, True)
    return tensors


def _classes(model: ProtoPNet, contents: Contents, form: Format) -> Tensor:
    """The class of every prototype: as in the file, or in blocks if the weights agree."""
    weight, identity = contents.tensors["linear.weight"], contents.settings.get("prototype_class_identity")
    if identity is not None:
        one_hot = isinstance(identity, Tensor) and identity.shape == weight.T.shape
        if not (one_hot and (identity.sum(dim=1) == 1).all() and (identity.amax(dim=1) == 1).all()):
            raise ValueError(
                f"Expected `prototype_class_identity` in {contents.file} to be a row with a single 1 for each of the "
                f"{weight.shape[1]} prototypes and a column for each of the {len(weight)} classes, but it is not."
            )
        classes: Tensor = identity.argmax(dim=1)
        return classes
    blocks = model.owner.int().argmax(dim=1)
    if len(blocks) != weight.shape[1] or not torch.equal(weight.argmax(dim=0), blocks):
        raise ValueError(
            f"Expected {contents.file} to say `prototype_class_identity`, because its {weight.shape[1]} prototypes are "
            f"not {len(blocks)} that each weigh most for the class of their block. Set `prototypes_per_class`, or, if "
            "it is pruned or out of order, write it where the authors' code can be imported with these three lines: "
            f"{form.lines(contents.file)}"
        )
    return blocks


FORMAT = Format(
    code="released code of Chen et al. 2019",
    names={
        "features.": "backbone.net.",
        "add_on_layers.": "addon.",
        "prototype_vectors": "prototypes.vectors",
        "last_layer.": "linear.",
    },
    arguments={
        "backbone.strides": ("standard",),
        "addon": ("sigmoid",),
        "similarity": ("l2_log",),
        "epsilon": (1e-4,),
    },
    sizes=("backbone.name", "prototypes_per_class", "prototype_channels"),
    ignored=("ones",),  # the kernel of a convolution that sums squares
    refused={"add_on_layers.4.": "an add-on of the type `bottleneck`, while ours is `regular`: two convolutions"},
    implied={"prototype_activation_function": "log"},
    settings='{name: getattr(model, name) for name in ("prototype_class_identity", "prototype_activation_function")}',
    adapt=_with_classes,
)
