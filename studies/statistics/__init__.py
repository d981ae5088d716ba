"""The statistics of a study, as functions of plain numbers and arrays: they know neither files nor questions."""
