"""What turns a latent into a decision: prototype layers, linear and sparse heads; plain modules without Lightning."""
