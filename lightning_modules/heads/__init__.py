"""Heads, which compute a decision from a latent: prototype layers, slots, trees; plain modules without Lightning."""
