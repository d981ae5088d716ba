"""Concepts from words: no image is annotated, and text and image towers such as CLIP's say what a word looks like.

Filters of words and their directions top to bottom; those by name are in ``callbacks/phases/words.py``, and projection,
head and residual in ``bases/projected_concepts.py``. A direction is found in one of two ways:

- *learnt*: the label-free bottleneck (Oikarinen et al. 2023, *Label-Free Concept Bottleneck Models*), on any backbone.
- *text*: the multimodal bank of Yuksekgonul et al. 2023, *Post-hoc Concept Bottleneck Models*, section 3: the text
  embeddings themselves, where the backbone is the image tower.

Deviations from the released code of the former: a fifth of the training images stops and judges the layer, there the
validation split, which for some of their data is the test split; words are compared by the text embeddings of the file,
there also by a language model; the sparse head is solved to its optimum. Of the latter: the embedding is the mean over
the cells of the tower, not its class token, so that a word has a map; the head is solved on standardised scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.projected_concepts import ProjectedConcepts
from protometry.lightning_modules.contract import LeftOut, UnitTable, Words
from protometry.lightning_modules.heads.concept_layer import fit_concept_layer
from protometry.lightning_modules.heads.sparse_head import vary
from protometry.metrics.primitives.checks import check_choice
from protometry.run_folder.command_line.user_path import user_path

Directions = Literal["learnt", "text"]
_REASONS: tuple[LeftOut, ...] = get_args(LeftOut)
_STRONGEST = 5  # images that show a word best


class LabelFreeCBM(ProjectedConcepts):
    """Bottleneck of words.

    With f the mean over cells of the latent z, t_l the text embedding of word l and e_i the image embedding of training
    image i, both of norm 1, P_il = e_i·t_l. Presets: ``plain``, and ``hybrid`` with a residual from f to the logits.

    - *learnt*: W maximises the mean over l of the cubed cosine between P_·l and (W f_i)_l over training images. A word
      scores u_l = ((W f)_l - μ_l) / σ_l with mean and standard deviation over training images. A word is left out if
      it is too long, a class or like one, or like another word; if no image shows it (the mean of the five largest
      P_il is at most ``shown_cutoff``); or if its neuron is not like it (a cubed cosine of at most
      ``interpretability_cutoff`` on held-out images).
    - *text*: u_l = t_l·f, for a backbone whose channels are the space of the text embeddings. No word is left out.

    Logits are V u + b with the sparse V of :class:`~protometry.lightning_modules.posthoc_cbm.PosthocCBM`.

    Args:
        embeddings: file of :class:`~protometry.callbacks.phases.words.WordEmbeddings`, read when training begins.
        concepts: a text file with a word or phrase on every line.
        words: the words themselves, in place of a file; checkpoints hold them.
        directions: how the direction of a word is found.
        shown_cutoff: -1 to 1; published for CLIP's ViT-B/16 are 0.25 (CIFAR), 0.26 (CUB) and 0.28 (ImageNet,
            Places365). Other towers have other cosines.
        interpretability_cutoff: -1 to 1.
        longest: characters of a word.
        like_class: cosine to the name of a class from which on a word is left out.
        like_another: cosine to another word from which on one of the two is left out.
        penalty: λ of the head; published are 1e-4 to 7e-4.
        l1_ratio: α of the elastic net, in [0, 1]; 0 for squares only.

    Raises:
        FileNotFoundError: if the file of words is missing.
        ValueError: for fewer than 2 words, an option out of range, or multilabel data; before training begins, if the
            embeddings lack a word or a training image.

    Example:
        >>> model = LabelFreeCBM("words.npz", words=["a beak", "long legs"], num_classes=4, image_size=(32, 32)).eval()
        >>> model(torch.rand(2, 3, 32, 32)).scores.shape, model.units().names
        (torch.Size([2, 2]), ('a beak', 'long legs'))
    """

    card = Card(
        name="Label-free concept bottleneck",
        units="words, directions in the embedding learnt from text and image towers",
        decision="sparse linear head over projections",
        paper="Oikarinen et al. 2023",
        url="https://arxiv.org/abs/2304.06129",
        page="label_free_cbm.md",
    )
    linked: Tensor
    left_out: Tensor
    shown: Tensor
    similarities: Tensor

    def __init__(  # noqa: PLR0913 - a command line sets these one by one
        self,
        embeddings: str,
        concepts: str | None = None,
        words: list[str] | None = None,
        directions: Directions = "learnt",
        shown_cutoff: float = 0.25,
        interpretability_cutoff: float = 0.45,
        longest: int = 30,
        like_class: float = 0.85,
        like_another: float = 0.9,
        penalty: float = 7e-4,
        l1_ratio: float = 0.99,
        preset: str = "plain",
        **kwargs: Any,
    ) -> None:
        super().__init__(preset=preset, **kwargs)
        check_choice("directions", directions, get_args(Directions))
        for name, value in (("shown_cutoff", shown_cutoff), ("interpretability_cutoff", interpretability_cutoff)):
            if not -1 <= value <= 1:
                raise ValueError(f"Expected argument `{name}` to be a cosine, from -1 to 1, but got {value}.")
        names = read_words(concepts if words is None else words)
        self.hparams["words"] = names  # so that a checkpoint does not need the file
        self.words = Words(names, embeddings, directions, longest, like_class, like_another)
        self.shown_cutoff, self.interpretability_cutoff = shown_cutoff, interpretability_cutoff
        self.make_layers(len(names), penalty, l1_ratio)
        codes = torch.zeros(len(names), dtype=torch.int64)
        self.register_buffer("linked", codes - 1)  # the concept of the data that has the name of the word, -1 for none
        self.is_linked = False  # whether any is, which `units` would have to wait for a device to know
        self.register_buffer("left_out", codes)  # of `LeftOut`
        self.register_buffer("shown", torch.full((len(codes),), torch.nan))
        self.register_buffer("similarities", torch.full((len(codes),), torch.nan))

    def units(self) -> UnitTable:
        """Words; a class owns those with a positive weight. Those that are left out are inactive.

        They stand for concepts of the data where the names are the same.
        """
        active, weight = self._active(), self.linear.weight
        table = UnitTable("concept", active, weight.T > 0, "mean", weight, self.vectors, comparison="projection")
        linked = self.linked if self.is_linked else None
        return replace(table, concepts=linked, names=tuple(self.words.names))

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load weights."""
        keys = super().load_state_dict(state_dict, strict, assign)
        self.is_linked = bool((self.linked >= 0).any())
        return keys

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse to resume with other words.

        Raises:
            ValueError: if the file of words has changed since.
        """
        if checkpoint["hyper_parameters"]["words"] != self.words.names:
            raise ValueError(
                "Expected argument `concepts` to be a file with the words of the checkpoint, but they have changed. "
                "Restore them, or start another run with `--experiment NAME`."
            )

    # -- fitting -----------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def load_words(self, unfit: list[LeftOut], linked: list[int], vectors: Tensor | None) -> None:
        """What is known of the words before the fit, see :class:`~protometry.lightning_modules.contract.FitsWords`."""
        channels = self.backbone.out_channels
        if vectors is not None and vectors.shape[1] != channels:
            raise ValueError(
                f"Expected text embeddings of {channels} numbers, as many as the backbone has channels, but "
                f"{self.words.embeddings} has {vectors.shape[1]}. With `directions: text` the backbone must be the "
                "image tower of the texts; otherwise use `directions: learnt`."
            )
        self.left_out.copy_(torch.tensor([_REASONS.index(reason) for reason in unfit]))
        self.linked.copy_(torch.tensor(linked))
        self.is_linked = max(linked) >= 0
        if vectors is not None:
            self.vectors.copy_(vectors)

    @torch.no_grad()
    def fit_concepts(self, embeddings: Tensor, concepts: Tensor, targets: Tensor, seed: int) -> dict[str, float]:
        """Find the direction of every word, then the head on the projected embeddings.

        Args:
            embeddings: ``(n, D)`` float32 of the training images.
            concepts: ``(n, L)``, P; not read where directions are the texts themselves.
            targets: ``(n,)`` int64 classes, or ``(n, K)`` float probabilities.
            seed: of the layer's first weights, and of the images that are held out.

        Returns:
            concepts and left_out (words), mean similarity of the neurons to their words and step of the layer (learnt
            only), weights_used (share of the head's), violation (of its optimality conditions), and head_accuracy on
            the training images.

        Raises:
            ValueError: if fewer than 2 words are left.
        """
        found = {"concepts": float(len(self.words.names)), "left_out": 0.0}
        if self.words.directions == "learnt":
            found = self._learn(embeddings, concepts.float(), seed)
        return found | self._fit_head(embeddings, targets)

    def _learn(self, embeddings: Tensor, strengths: Tensor, seed: int) -> dict[str, float]:
        shown = strengths.topk(min(_STRONGEST, len(strengths)), dim=0).values.mean(dim=0)
        by_name = _REASONS.index("no image shows it")  # those before it are known before the fit
        codes = self.left_out.where(self.left_out < by_name, 0).cpu()
        codes[(codes == 0) & ~((shown > self.shown_cutoff) & vary(strengths))] = _REASONS.index("no image shows it")
        tried = (codes == 0).nonzero().flatten()
        similarities = torch.full_like(shown, torch.nan)
        if len(tried):
            layer = fit_concept_layer(embeddings, strengths[:, tried], seed)
            scores = embeddings @ layer.weight.T
            similarities[tried] = layer.similarities
            good = (layer.similarities > self.interpretability_cutoff) & vary(scores)
            codes[tried[~good]] = _REASONS.index("not interpretable")
        kept = (codes == 0).nonzero().flatten()
        if len(kept) < 2:
            counts = Counter(_REASONS[code] for code in codes[codes > 0].tolist())
            reasons = ", ".join(f"{count} {reason}" for reason, count in counts.items())
            raise ValueError(
                f"Expected at least 2 words that some images show and the backbone can tell, but {len(kept)} of "
                f"{len(codes)} are left ({reasons}). Lower `shown_cutoff` or `interpretability_cutoff`, or choose "
                "other words or a backbone that tells the images apart."
            )
        deviation, mean = torch.std_mean(scores[:, good], dim=0)
        self.vectors.zero_()
        self.vectors[kept] = (layer.weight[good] / deviation[:, None]).to(self.vectors)
        self.intercepts.zero_()
        self.intercepts[kept] = (-mean / deviation).to(self.intercepts)
        for name, values in (("left_out", codes), ("shown", shown), ("similarities", similarities)):
            getattr(self, name).copy_(values)
        return {
            "concepts": float(len(kept)),
            "left_out": float(len(codes) - len(kept)),
            "similarity": similarities[kept].mean().item(),
            "step": float(layer.step),
        }

    def concept_bank(self) -> dict[str, list[Any]]:
        """For every word: whether it is used, why not, how much images show it, and how like it its neuron is."""
        return {
            "fitted": self._active().tolist(),
            "left_out": [_REASONS[code] for code in self.left_out.tolist()],
            "shown": self.shown.tolist(),
            "similarity": self.similarities.tolist(),
        }


def read_words(concepts: str | Sequence[str] | None) -> list[str]:
    """The words of a text file with one a line, or the words given; empty lines do not count.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for fewer than two words, or one that repeats.
    """
    where = "argument `words`"
    if concepts is None or isinstance(concepts, str):
        path, where = user_path(concepts or ""), str(concepts)
        if not path.is_file():
            raise FileNotFoundError(
                "Expected argument `concepts` to be a text file with a concept on every line, but there is no "
                f"{concepts}."
            )
        concepts = path.read_text("utf-8").splitlines()
    words = [word.strip() for word in concepts if word.strip()]
    repeated = [word for word, count in Counter(words).items() if count > 1]
    if len(words) < 2 or repeated:
        got = f"{repeated[0]!r} twice" if repeated else str(len(words))
        raise ValueError(f"Expected {where} to hold at least 2 concepts, each once, but got {got}.")
    return words
