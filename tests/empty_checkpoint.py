"""The least that a file must hold to be read as a checkpoint."""

EMPTY = {
    **{"state_dict": {}, "hyper_parameters": {}, "datamodule_hyper_parameters": {}},
    **{"global_step": 0, "loops": {}, "callbacks": {}},
}
