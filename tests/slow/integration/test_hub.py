"""Models on the Hugging Face hub, here one on loopback."""

from pathlib import Path

import yaml

from protometry.evaluation.demo import RUN


def test_a_model_goes_to_the_hub_and_explains_from_there(hub, tmp_path):
    python, repositories = hub
    pushed = python("-m", "protometry", "push", str(RUN), "hf://birds/quickstart")
    assert pushed.returncode == 0, pushed.stderr
    files = repositories["birds/quickstart"]
    assert {"README.md", "model.json", "model.safetensors"} < set(files)
    card = files["README.md"].decode()
    assert 'PhotoExplainer("hf://birds/quickstart")' in card
    assert "Exported without an evaluation." in card
    assert "ProtoPNet ([Chen et al. 2019](https://arxiv.org/abs/1806.10574))" in card
    files["code.py"] = b"raise SystemExit"  # of somebody else, and never fetched
    photo = Path(__file__).parents[3] / "docs/prototypes.png"
    explain = ["evaluate", "explain", "--image", str(photo), "--output", "explained", "--ckpt_path"]
    explained = python("-m", "protometry", *explain, "hf://birds/quickstart")
    assert explained.returncode == 0, explained.stderr
    assert (tmp_path / "explained/prototypes-png.html").is_file()
    assert not list((tmp_path / "hub").rglob("code.py"))
    repositories.clear()  # what was fetched serves without the hub
    again = python("-c", "import protometry; print(protometry.load_model('hf://birds/quickstart').num_classes)")
    assert again.stdout == "20\n", again.stderr


def test_a_model_can_be_tried_in_a_space(hub, tmp_path):
    python, repositories = hub
    pushed = python("-m", "protometry", "push", str(RUN), "hf://birds/try", "--space", "true")
    assert pushed.returncode == 0, pushed.stderr
    files = repositories["birds/try"]
    assert {"app.py", "requirements.txt", "README.md", "model/model.json", "model/README.md"} < set(files)
    assert yaml.safe_load(files["README.md"].decode().split("---")[1]) == {
        "title": "try", "sdk": "gradio", "app_file": "app.py",
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    *imports, _, started = files["app.py"].decode().strip().splitlines()
    assert started == 'launch(open_explorer("model"))'
    ran = python("-c", "\n".join([*imports, 'print(len(open_explorer("model").units))']))
    assert int(ran.stdout) > 0, ran.stderr


def test_what_the_hub_refuses_or_holds_already_is_said_in_a_line(hub):
    python, repositories = hub
    repositories["birds/theirs"] = {"pytorch_model.bin": b""}
    for command, said in (
        (["-m", "protometry", "push", str(RUN), "hf://birds/theirs"], "it holds pytorch_model.bin"),
        (["-m", "protometry", "evaluate", "explain", "--image", "a.png", "--ckpt_path", "hf://no/one"], "hf://no/one"),
    ):
        ended = python(*command)
        assert ended.returncode == 2, ended.stderr
        assert said in ended.stderr
        assert "Traceback" not in ended.stderr
    assert list(repositories["birds/theirs"]) == ["pytorch_model.bin"]
