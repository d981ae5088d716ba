"""Where a unit looks: explainers, and views that draw their maps."""
