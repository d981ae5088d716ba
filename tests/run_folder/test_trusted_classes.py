"""Classes that checkpoints name: none is imported from a place that is not trusted."""

import sys

import pytest

from protometry.lightning_modules import InterpretableModule, ProtoPNet
from protometry.run_folder.trusted_classes import stored_class

RUNS, OWN = "protometry_runs.first.planted", "protometry_own.models"


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Two runs and a package, all with modules that leave a file behind when they are imported."""
    monkeypatch.syspath_prepend(tmp_path)
    for module in (RUNS, RUNS.replace("first", "second"), OWN):
        file = tmp_path / (module.replace(".", "/") + ".py")
        file.parent.mkdir(parents=True)
        code = (
            f"open({str(tmp_path / 'RAN')!r}, 'w').close()\nfrom protometry.lightning_modules import ProtoPNet as Mine"
        )
        (file.parent / "__init__.py").write_text(code)
        file.write_text(code)
    for run in ("first", "second"):
        folder = tmp_path / "protometry_runs" / run
        (folder / "checkpoints").mkdir()
        (folder / "checkpoints" / "last.ckpt").touch()
        (folder / "config.yaml").touch()
    (tmp_path / "protometry_linked").symlink_to(tmp_path / "protometry_runs/first")
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("protometry_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("named", "allowed", "message"),
    [
        ({"_class_path": f"{OWN}.Mine"}, (), rf"but it names '{OWN}.Mine', .*`--allow_classes protometry_own`"),
        ({"_class_path": f"{OWN}.Mine"}, ("protometry_ow", "protometry_own.other"), f"but it names '{OWN}.Mine'"),
        ({"_class_path": "os.system"}, (), "names 'os.system'"),
        ({"_class_path": "Mine"}, (), "names 'Mine'"),
        ({"norm": {"class_path": "protometry" + ".a" * 20}}, (), "at most 20 names of at most 100 letters"),
        ({"norm": {"class_path": "protometry." + "a" * 101}}, (), "at most 20 names of at most 100 letters"),
        ({"backbone": {"init_args": {"norm": [{"class_path": f"{OWN}.Mine"}]}}}, (), f"names '{OWN}.Mine'"),
        ({"_class_path": f"{RUNS}.Mine"}, ("protometry_runs",), r"outside the folders of runs, but .*first/"),
        ({"data": {"class_path": f"{RUNS}.Mine"}}, ("protometry_runs",), r"outside the folders of runs, but .*first/"),
        ({"_class_path": f"{RUNS.replace('first', 'second')}.Mine"}, (RUNS.split(".")[0],), r"runs, but .*second/"),
        ({"_class_path": "protometry_linked.planted.Mine"}, ("protometry_linked",), "outside the folders of runs"),
        ({"_class_path": "protometry.callbacks.gone.Model"}, (), "No module named 'protometry.callbacks.gone'"),
        ({"_class_path": "gone.Model"}, ("gone",), "to be importable, but No module named 'gone'"),
        ({"_class_path": "__main__.Model"}, ("__main__",), "to name a InterpretableModule, but it names '__main__"),
        ({"_class_path": "protometry.lightning_modules.Nothing"}, (), "but it names '.*Nothing'"),
        ({"_class_path": "protometry.lightning_modules.load_model"}, (), "to name a InterpretableModule, but it names"),
        ({"_class_path": None}, (), "to name a InterpretableModule, but it names None"),
    ],
)  # fmt: skip
def test_refused_before_any_code_has_run(named, allowed, message, planted):
    path = planted / "protometry_runs/first/checkpoints/last.ckpt"
    named = {"_class_path": "protometry.lightning_modules.ProtoPNet"} | named
    with pytest.raises(ValueError, match=message):
        stored_class(named, InterpretableModule, path, allowed)
    assert not (planted / "RAN").exists()


@pytest.mark.parametrize("allowed", ["protometry_own", OWN])
def test_a_package_that_is_allowed(allowed, planted):
    path = planted / "protometry_runs/first/checkpoints/last.ckpt"
    assert stored_class({"_class_path": f"{OWN}.Mine"}, InterpretableModule, path, [allowed]) is ProtoPNet
    assert (planted / "RAN").exists()
