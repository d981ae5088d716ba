"""Layer-wise and prototypical relevance propagation."""

from explanations.relevance.explainers import LRP, PRP

__all__ = ["LRP", "PRP"]
