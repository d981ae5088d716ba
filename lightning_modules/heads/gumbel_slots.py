"""Slots of a class, each assigned to one prototype of a shared pool, softly while it is trained."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

FULL_SCALE = 1000.0


def gumbel_scale(epoch: int, epochs: int, delay: int = 0) -> float:
    """The scale of the assignment logits in an epoch: c = 1000·√(e / E) for e < E, then 1000; at least 1.

    Source: released code of Rymarczyk et al. 2022, whose start value cancels out and whose epoch 0 trains nothing, so
    that e is 1 in epoch 0 of the run. With the ``delay`` 2 of the code of Schlinge et al. 2025, e = -1 there, and below
    0 the slots are softmax(Q) without noise: c = 0.

    Example:
        >>> gumbel_scale(0, 4), gumbel_scale(3, 4), gumbel_scale(99, 4)
        (500.0, 1000.0, 1000.0)
        >>> [gumbel_scale(epoch, 4, delay=2) for epoch in range(4)]
        [0.0, 1.0, 500.0, 707.1067811865476]
    """
    done = epoch + 1 - delay
    return max(1.0, FULL_SCALE * math.sqrt(min(1.0, done / epochs))) if done >= 0 else 0.0


class Slots(nn.Module):
    """S slots for each of K classes, every one a distribution over a pool of U prototypes.

    Source: Rymarczyk et al. 2022 (ProtoPool): q = Gumbel-softmax(c·Q) with temperature τ, softmax(Q) where c = 0.
    Deviation: slots that are not being trained are hard, the arg-max of Q without noise; with noise an evaluation would
    be random.

    Example:
        >>> slots = Slots(num_classes=1, num_prototypes=3, slots_per_class=2, epochs=1, temperature=0.5).eval()
        >>> _ = slots.logits.data.copy_(torch.tensor([[[0.0, 0.1], [0.3, 0.0], [0.3, 0.2]]]))
        >>> slots.assignment().argmax(dim=1)  # the first on ties
        tensor([[1, 2]])
    """

    scale: Tensor
    noise_seed: Tensor

    def __init__(
        self,
        num_classes: int,
        num_prototypes: int,
        slots_per_class: int,
        epochs: int,
        temperature: float,
        delay: int = 0,
    ) -> None:
        super().__init__()
        self.epochs, self.temperature, self.delay = epochs, temperature, delay
        logits = torch.empty(num_classes, num_prototypes, slots_per_class)
        self.logits = nn.Parameter(nn.init.xavier_normal_(logits))
        self.register_buffer("scale", torch.tensor(gumbel_scale(0, epochs, delay)))
        self.register_buffer("noise_seed", torch.randint(2**31, ()))
        self.read_seed()

    def read_seed(self) -> None:
        """Copy the seed, on which all processes agree, to the host, so that no step has to wait for it."""
        self._seed = int(self.noise_seed)

    def sharpen(self, epoch: int) -> None:
        """Set the scale for a 0-based epoch of the run."""
        self.scale.fill_(gumbel_scale(epoch, self.epochs, self.delay))

    def assignment(self, step: int = 0) -> Tensor:
        """``(K, U, S)``, the distribution of every slot over the pool: soft where the logits are trained, else hard."""
        if not (self.training and self.logits.requires_grad):
            return self.hard()
        generator = torch.Generator(self.logits.device).manual_seed(self._seed + step)
        waiting = torch.empty_like(self.logits).exponential_(generator=generator)
        noise = -waiting.clamp_min(torch.finfo(waiting.dtype).tiny).log()
        noisy = (self.logits * self.scale + noise) / self.temperature
        return torch.where(self.scale > 0, noisy, self.logits).softmax(dim=1)

    def hard(self) -> Tensor:
        """``(K, U, S)`` float, 1 at the prototype of each slot, the first on ties; 0 elsewhere."""
        chosen = self.logits.detach().argmax(dim=1, keepdim=True)
        return torch.zeros_like(self.logits).scatter_(1, chosen, 1.0)

    def presence(self) -> Tensor:
        """``(K, U)`` bool, the class has a slot on the prototype."""
        return (self.hard() > 0).any(dim=2)
