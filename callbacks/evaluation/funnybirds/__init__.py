"""The FunnyBirds protocol in an evaluation: parts and objects are taken out of images, as metrics ask for it."""
