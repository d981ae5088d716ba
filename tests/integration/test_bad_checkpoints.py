"""Damaged and foreign checkpoints end in one clear error before they are used, and no code of theirs is run."""

import os

import pytest
import torch

from protometry.evaluation.trained_model import TrainedModel
from tests.tiny_runs import differences, fit, last, run_evaluation


class Planted:
    """A pickled object that would run code."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def tamper(folder, change, source=None):
    """Change the checkpoint of a run, or what one of another run holds."""
    path = folder / "checkpoints" / "last.ckpt"
    checkpoint = torch.load((source or folder) / "checkpoints" / "last.ckpt", weights_only=True)
    torch.save(change(checkpoint) or checkpoint, path)
    return path


def set_item(*keys):
    *path, name, value = keys

    def change(checkpoint):
        for key in path:
            checkpoint = checkpoint[key]
        checkpoint[name] = value

    return change


def itself():
    nested = []
    nested.append(nested)
    return nested


def without(*keys):
    return lambda checkpoint: {key: value for key, value in checkpoint.items() if key not in keys}


FOREIGN = [
    (set_item("callbacks", "x", Planted()), "to be a checkpoint with tensors and plain types only"),
    (lambda checkpoint: checkpoint["state_dict"], "it lacks `state_dict`; it lacks `hyper_parameters`; .* 3 more"),
    (lambda checkpoint: [1, 2], "but its content is different"),
    (without("loops", "callbacks"), "it lacks `loops`; it lacks `callbacks`"),
    (set_item("hyper_parameters", "_instantiator", "os.system"), "_instantiator`: .*, got 'os.system'"),
    (set_item("datamodule_hyper_parameters", "_instantiator", "os.system"), "_instantiator`: .*, got 'os.system'"),
    (set_item("hyper_parameters", 3), "`hyper_parameters`: input should be a valid dictionary .*, got 3"),
    (set_item("hyper_parameters", "image_size", itself()), "but it is nested too deeply"),
    (set_item("training", "settings", []), "`training.settings`: list should have at least 1 item"),
    (set_item("global_step", "x"), "`global_step`: input should be a valid integer, got 'x'"),
]


def test_foreign_checkpoints(run_copy, finished_run):
    for change, message in FOREIGN:
        tamper(run_copy, change, finished_run)
        with pytest.raises(ValueError, match=message):
            last(run_copy)
    tamper(run_copy, FOREIGN[0][0], finished_run)
    for use in (run_evaluation, lambda folder: fit(folder, "--ckpt_path", "last")):
        with pytest.raises(ValueError, match=FOREIGN[0][1]):
            use(run_copy)
    assert not os.path.exists("ran")
    assert not (run_copy / "evaluation").exists()


OTHER = [
    (set_item("hyper_parameters", "_class_path", "os.system"), "to name classes of this project, but it names"),
    (set_item("datamodule_hyper_parameters", "_class_path", "builtins.dict"), "to name classes of this project"),
    (set_item("hyper_parameters", "image_size", "x"), "of NoisyProtoPNet, but .*image_size.* Got value: x"),
    (set_item("datamodule_hyper_parameters", "test_size", 1.5), "of SketchBirds, but .*test_size.* <class .int.>"),
    (set_item("datamodule_hyper_parameters", "test_size", 10**12), "every split to have at most 10000000 images"),
    (set_item("training", "class_names", ["a"]), "to name as many classes as it has, but got 1 names"),
    (
        lambda checkpoint: checkpoint["state_dict"].__delitem__("linear.weight"),
        r"weights of NoisyProtoPNet, but got others: .*linear.weight.*last.ckpt",
    ),
]


def test_checkpoints_that_name_other_things(run_copy, finished_run):
    for change, message in OTHER:
        trained = TrainedModel(tamper(run_copy, change, finished_run), allow_classes=["tests"])
        with pytest.raises(ValueError, match=message):
            trained.explained()
    with pytest.raises(ValueError, match=OTHER[-1][1]):
        run_evaluation(run_copy)


def test_a_flipped_byte_anywhere(run_copy):
    path = run_copy / "checkpoints" / "last.ckpt"
    whole, read = path.read_bytes(), last(run_copy)
    unseen = []
    for position in range(11, len(whole), len(whole) // 50):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 16]) + whole[position + 1 :])
        try:
            unseen.append(last(run_copy))
        except ValueError as error:
            message = str(error)
    assert message.startswith(f"Expected {path} to be a checkpoint")
    assert len(unseen) < 10  # between the records of the archive, where nothing is stored
    assert [differences(checkpoint, read) for checkpoint in unseen] == [[]] * len(unseen)


def test_a_truncated_file(run_copy):
    path = run_copy / "checkpoints" / "last.ckpt"
    whole = path.read_bytes()
    for share in (0.0, 0.3, 0.99):
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(ValueError, match=r"last.ckpt to be a checkpoint with .* but it is damaged or foreign"):
            last(run_copy)


def test_outputs_that_are_not_finite_name_the_samples(run_copy):
    def change(checkpoint):
        checkpoint["state_dict"]["prototypes.vectors"][0, 0] = torch.nan

    tamper(run_copy, change)
    with pytest.raises(ValueError, match=r"Expected finite model outputs, but got .* the samples .*test/0000"):
        run_evaluation(run_copy)
    assert not (run_copy / "evaluation").exists()


RESUMED = [
    (set_item("callbacks", "PhaseSchedule", {"index": "x"}), "lacks `callbacks.PhaseSchedule.entered`"),
    (set_item("loops", {}), "it lacks `loops.fit_loop`"),
    (set_item("optimizer_states", []), r"`optimizer_states`: list should have at least 1 item .*, got \[\]"),
    (set_item("state_dict", {}), "weights of NoisyProtoPNet, but got others: .*Missing key"),
]


def test_what_a_resumed_run_goes_on_from(run_copy, finished_run):
    for change, message in RESUMED:
        tamper(run_copy, change, finished_run)
        with pytest.raises(ValueError, match=message):
            fit(run_copy, "--ckpt_path", "last")
