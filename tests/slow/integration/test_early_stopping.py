"""Early stopping ends phases of a schedule, which then continues as if they had ended by the plan."""

import pytest

from tests.tiny_runs import STEPS_PER_EPOCH, StopError, differences, fit, last, state, stop_at

# a threshold that every score passes ends each phase after its first epoch
STOP = [
    "--trainer.callbacks+=EarlyStopping",
    *(f"--trainer.callbacks.{each}" for each in ("monitor=val/general/accuracy", "mode=max", "stopping_threshold=-1")),
]
PHASES = {
    "ProtoTree": {"warm": 1, "joint": 1, "settle": 1},
    "ProtoPNet": {"warm": 1, "joint": 1, "last": 1, "joint2": 1},
}
PATIENT = [
    *STOP[:-1],
    "--trainer.callbacks.patience=1",
    "--trainer.callbacks.min_delta=1",
]  # no score gains 1


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """One folder per model, of a run in which early stopping ended phases."""
    folders = {model: tmp_path_factory.mktemp("runs") / model for model in PHASES}
    for model, folder in folders.items():
        fit(folder, *STOP, model=model)
    return folders


@pytest.mark.parametrize("model", PHASES)
def test_a_phase_ends_and_the_plan_goes_on(stopped, model):
    record = last(stopped[model])["training"]
    assert record["epochs"] == PHASES[model]
    assert (record["complete"], record["phase"]) == (True, list(PHASES[model])[-1])
    assert record["projected"] == (model == "ProtoTree")  # on exit; the last phase of the other moves its prototypes
    projections = (stopped[model] / "metrics.csv").read_text().split("\n")[0].count("project/")
    assert projections > 0


@pytest.mark.parametrize(("model", "step", "hook"), [
    ("ProtoPNet", 2 * STEPS_PER_EPOCH, "on_train_epoch_start"),  # the phase has ended early, the next has not begun
    ("ProtoPNet", 3 * STEPS_PER_EPOCH + 1, "on_train_batch_start"),
    ("ProtoTree", 3 * STEPS_PER_EPOCH, "on_save_checkpoint"),  # before the last epoch is saved
])  # fmt: skip
def test_resume_is_exact(stopped, model, step, hook, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(StopError):
        fit(folder, *STOP, *stop_at(step, hook), model=model)
    fit(folder, *STOP, "--ckpt_path", "last", model=model)
    fit(folder, *STOP, "--ckpt_path", "last", model=model)  # a finished run stays as it is
    assert differences(state(folder), state(stopped[model])) == []


def test_patience_starts_over_with_every_phase(tmp_path):
    """A score of the phase before does not count, so a phase cannot end with its first epoch."""
    fit(tmp_path / "run", *PATIENT)
    assert last(tmp_path / "run")["training"]["epochs"] == {"warm": 1, "joint": 2, "last": 1, "joint2": 1}
