"""Layer-wise and prototypical relevance propagation."""

from protometry.explanations.relevance.prp_and_lrp import LRP, PRP

__all__ = ["LRP", "PRP"]
