"""A run that starts from the weights of a finished one."""

import pytest
import torch

from tests.tiny_runs import StopError, differences, fit, last, run_evaluation, stop_at


def start_of(run, checkpoint="last"):
    return f"--model.init_from={run}/checkpoints/{checkpoint}.ckpt"


def test_weights_are_the_start_and_the_schedule_begins_again(tmp_path, finished_run):
    folder = tmp_path / "further"
    more = [start_of(finished_run), "--model.class_weights=true", "--model.phases.warm=null", "--data.batch_size=24"]
    with pytest.raises(StopError):
        fit(folder, *more, *stop_at(0))
    begun = last(folder)
    loaded = {name: value for name, value in begun["state_dict"].items() if name != "class_weights"}
    assert differences(loaded, dict(last(finished_run)["state_dict"])) == []
    assert torch.equal(begun["state_dict"]["class_weights"], torch.ones(8))
    assert (begun["global_step"], begun["optimizer_states"][0]["state"]) == (0, {})
    fit(folder, *more, "--ckpt_path=last")
    straight = tmp_path / "straight"
    fit(straight, *more)
    assert differences(last(folder)["state_dict"], last(straight)["state_dict"]) == []
    run_evaluation(folder, "--suite", "general")
    result = (folder / "evaluation/metrics.json").read_text()
    assert f'"init_from": "{finished_run.name}/last.ckpt"' in result


def test_a_resumed_run_does_not_need_its_start(tmp_path, finished_run, stopped_copy):
    start = tmp_path / "start.ckpt"
    start.write_bytes((finished_run / "checkpoints/last.ckpt").read_bytes())
    more = [f"--model.init_from={start}"]
    folder = tmp_path / "moved"
    with pytest.raises(StopError):
        fit(folder, *more, *stop_at(4))
    start.unlink()
    fit(folder, *more, "--ckpt_path=last")
    assert last(folder)["epoch"] == 4


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--model.prototypes_per_class=3"], "Use the arguments of the model in its run"),
        (["--data.num_birds=6"], "--model.backbone.weights"),
    ],
)
def test_weights_of_other_shapes_are_refused(tmp_path, finished_run, more, reason):
    with pytest.raises(ValueError, match=reason):
        fit(tmp_path / "other", start_of(finished_run), *more)


def test_another_class_and_no_checkpoint_are_refused(tmp_path, finished_run):
    with pytest.raises(ValueError, match=r"a checkpoint of a Classifier, but .* is of a NoisyProtoPNet"):
        fit(tmp_path / "other", start_of(finished_run), model="Classifier")
    with pytest.raises(FileNotFoundError, match=r"`model.init_from` to be a checkpoint file, but .*none.ckpt"):
        fit(tmp_path / "none", start_of(finished_run, "none"))
