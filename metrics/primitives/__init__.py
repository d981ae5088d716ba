"""Building blocks of the kernels: regions, boxes and peaks of maps, ranks, perturbations, intervals and checks."""
