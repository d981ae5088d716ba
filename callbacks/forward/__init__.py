"""The one way to show images to a model outside training: in chunks of one size, in evaluation mode."""
