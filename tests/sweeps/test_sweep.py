"""The file of a sweep: its runs, their names, flags and order, and every way it can be wrong."""

import shlex
import subprocess

import pytest
import yaml

from protometry.sweeps import cluster
from protometry.sweeps.__main__ import main
from protometry.sweeps.sweep import ROOT, groups, read_sweep

QUICK = "configs/quickstart.yaml"


def write(folder, **content):
    file = folder / "sweep.yaml"
    file.write_text(yaml.safe_dump({"name": "mine", "models": {"a": QUICK}} | content, sort_keys=False))
    return file


def test_every_combination_is_a_run(tmp_path):
    own = tmp_path / "own.yaml"
    own.touch()
    file = write(
        tmp_path,
        models={"a": QUICK, "b": {"config": [QUICK, str(own)], "model.phases.warm": None, "model.x": -1}},
        data={"birds": {"config": "configs/data/sketch_birds.yaml", "data.preset": "tiny"}},
        folds=[0, 3],
        seeds=[1, 2],
        flags={"evaluation.suite": ["general"], "data.preset": "small"},
    )
    runs = read_sweep(file, tmp_path / "runs").runs
    assert list(runs) == [f"{m}-birds-fold{f}-seed{s}" for f in (0, 3) for s in (1, 2) for m in "ab"]
    name = "b-birds-fold3-seed2"
    assert runs[name].folder == tmp_path / "runs" / "mine" / name
    expected = (
        f"fit --config {QUICK} --config {own} --config configs/data/sketch_birds.yaml "
        """--evaluation.suite '["general"]' --data.preset tiny --model.phases.warm null --model.x=-1 """  # a part's win
        f"--data.fold 3 --seed_everything 2 --runs {tmp_path / 'runs'} --experiment mine/{name} --test_after_fit true"
    )
    assert shlex.join(runs[name].fit_arguments(resume=False)) == expected
    assert runs[name].fit_arguments(resume=True)[-2:] == ["--ckpt_path", "last"]


def test_axes_that_are_not_named_are_no_part_of_a_name(tmp_path):
    assert list(read_sweep(write(tmp_path)).runs) == ["a"]
    assert list(read_sweep(write(tmp_path, seeds=[0])).runs) == ["a-seed0"]


def test_a_run_may_need_the_folder_of_another(tmp_path):
    tree = {"config": QUICK, "weights": "{box}/last.ckpt"}
    file = write(tmp_path, models={"tree": tree, "box": QUICK, "other": QUICK}, seeds=[0, 1])
    runs = read_sweep(file, "there").runs
    assert list(runs) == ["box-seed0", "other-seed0", "box-seed1", "other-seed1", "tree-seed0", "tree-seed1"]
    assert runs["tree-seed1"].needs == ("box-seed1",)
    assert "there/mine/box-seed1/last.ckpt" in runs["tree-seed1"].arguments
    assert groups(runs) == [["box-seed0", "tree-seed0"], ["other-seed0"], ["box-seed1", "tree-seed1"], ["other-seed1"]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"models": {}}, "`models`: .*at least 1 item"),
        ({"modles": {"a": QUICK}}, "`modles`: extra inputs are not permitted"),
        ({"models": {"a": "configs/nothing.yaml"}}, "`config` of a in .* to be a file, but got configs/nothing.yaml"),
        ({"models": {"a/b": QUICK}}, "should match pattern"),
        ({"flags": {"data.fold": 1}}, "`flags` in .* to leave out `data.fold`, which is set for every run"),
        ({"models": {"a": {"config": QUICK, "--experiment": "x"}}}, "a in .* to leave out `--experiment`"),
        ({"name": "../x"}, "`name` in .* to name a folder below `--runs`, but got '../x'"),
        (
            {"models": {"box": QUICK, "tree": {"config": QUICK, "x": "{bx}/y"}}},
            "{bx} in .* that tree can need, .*'box'",
        ),
        ({"models": {"a": {"config": QUICK, "x": ["{a}"]}}}, "{a} in .* to name a model that a can need, but got none"),
        ({"seeds": [1, 1]}, r"`seeds` in .* to be different numbers, but got \[1, 1\]"),
        ({"seeds": []}, "`seeds` in .* to be different numbers"),
        ({"models": {"a": {"config": QUICK, "x": "{b}"}, "b": {"config": QUICK, "x": "{a}"}}}, "a needs itself"),
        ({"models": {"a": QUICK, "a-b": QUICK}, "data": {"b-c": QUICK, "c": QUICK}}, "a-b-c stands for two"),
    ],
)
def test_mistakes_of_a_file(tmp_path, content, said):
    with pytest.raises((ValueError, FileNotFoundError), match=f"(?s)Expected .*{said}"):
        read_sweep(write(tmp_path, **content))


@pytest.mark.parametrize("file", sorted((ROOT / "configs" / "sweep").glob("[!t]*.yaml")), ids=lambda file: file.stem)
def test_sweeps_of_ours(file, monkeypatch):
    monkeypatch.chdir(ROOT)
    first = file.read_text().splitlines()[0]
    assert first.startswith(f"# protometry sweeps run {file.relative_to(ROOT)} ")
    assert len(read_sweep(file).runs) > 1


def test_further_flags_are_those_of_every_run(tmp_path):
    file = write(tmp_path, flags={"x": 1})
    words = shlex.join(read_sweep(file, "runs", "--data.root 'my birds'").runs["a"].fit_arguments(resume=False))
    assert f"--config {QUICK} --x 1 --data.root 'my birds' --seed_everything 0 " in words
    for wrong, said in (("--runs=elsewhere", "leave out `--runs`"), ("'x", "be words of a shell, .*: no closing quot")):
        with pytest.raises(ValueError, match=f"Expected argument `flags` to {said}"):
            read_sweep(file, "runs", wrong)


@pytest.mark.parametrize(
    ("command", "flags", "said"),
    [
        (["run", "--dry_run"], "--print_config", r"it says: a flag prints something instead of training \(in a\)"),
        (["slurm"], "--data.presett tiny", r"it says: .* Option 'presett' is not accepted \(in a\)"),
        (["wandb"], "--data.preset tny --trainer.max_steps 0", "it says: .*Got value: tny"),
        (["run", "--dry_run"], "--trainer.max_steps 0", "it says: Expected `trainer.max_steps` to be at least 1"),
        (["wandb"], "--x", "it says: unrecognized arguments: --x"),
    ],
)
def test_flags_that_the_training_would_refuse(tmp_path, command, flags, said):
    with pytest.raises(ValueError, match=f"Expected settings that `train.py fit` accepts, but {said}"):
        main([*command, str(write(tmp_path)), f"--flags={flags}"])


def test_the_same_sweep_for_a_cluster(tmp_path, monkeypatch, capsys):
    tree = {"config": QUICK, "model.backbone.weights": "{box}/last.ckpt"}
    file = write(tmp_path, models={"box": QUICK, "tree": tree, "other": QUICK}, seeds=[0, 1])
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "read_settings", lambda runs: None)
        main(["slurm", str(file)])
    script = capsys.readouterr().out
    assert "#SBATCH --array=0-3\n" in script
    # the shell's own reading of the script: what the third element of the array would run
    dry = script.replace("protometry sweeps", "printf '%s\\n' protometry sweeps")
    ran = subprocess.run(["bash", "-eu"], input=dry, capture_output=True, text=True, env={"SLURM_ARRAY_TASK_ID": "2"})
    assert ran.stdout.split() == ["protometry", "sweeps", "run", str(file), "--only", "box-seed1,tree-seed1"]
    write(tmp_path, models={"box": QUICK, "other": QUICK})
    main(["wandb", str(file), "--runs", "there", "--flags=--data.preset tiny"])
    agent = yaml.safe_load(capsys.readouterr().out)
    assert agent["parameters"]["only"]["values"][1] == "other"
    words = f"protometry sweeps run {file} --runs=there".split()
    assert agent["command"] == ["${env}", *words, "--flags=--data.preset tiny", "${args}"]


def test_an_array_that_is_too_long_is_remarked_on(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "read_settings", lambda runs: None)
    with pytest.warns(UserWarning, match="1,002 elements: SLURM accepts 1,001 in an array"):
        main(["slurm", str(write(tmp_path, seeds=[*range(1002)]))])
