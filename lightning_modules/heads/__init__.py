"""Heads, which turn a latent into a decision: prototype layers, slots, trees; plain modules without Lightning."""
