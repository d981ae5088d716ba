"""Relevance propagation: prototypical, layer-wise and attention-aware."""

from protometry.explanations.relevance.attn_lrp import AttnLRP
from protometry.explanations.relevance.prp_and_lrp import LRP, PRP

__all__ = ["LRP", "PRP", "AttnLRP"]
