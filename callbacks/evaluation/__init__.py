"""The evaluation of a model during and after training."""
