"""Which package may import which: every import is read with ``ast`` and compared with the list below."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# package -> prefixes of what it may import of other packages
MAY_IMPORT: dict[str, str] = {
    "metrics": "run_folder.command_line.messages.did_you_mean",
    "run_folder": "",
    "datamodules": "run_folder",
    "lightning_modules": "run_folder metrics:accuracy metrics.primitives.checks "
    "metrics.primitives.peaks metrics.primitives.perturbation metrics.primitives.truth metrics.primitives.upsample",
    "explanations": "run_folder.text_in_pictures lightning_modules.contract lightning_modules.bases.geometry "
    "metrics.concepts.maps metrics.primitives.boxes metrics.primitives.checks "
    "metrics.primitives.intersection_over_union metrics.primitives.places metrics.primitives.regions "
    "metrics.primitives.perturbation metrics.primitives.upsample",
    "callbacks": "run_folder lightning_modules.contract lightning_modules.bases.interpretable "
    "lightning_modules.bases.geometry "
    "lightning_modules.bases.training_inputs "
    "lightning_modules.phases lightning_modules.backbones.kept_features lightning_modules.backbones.sections "
    "lightning_modules.heads.sparse_path lightning_modules.heads.concept_bank "  # solved on the outputs of any model
    "explanations metrics datamodules.base "
    "datamodules.sample "
    "datamodules.bird_parts.InterventionDataset",  # the type of data whose images change part by part
    "evaluation": "callbacks run_folder explanations metrics "
    "lightning_modules.load_model lightning_modules.bases.load.model_from lightning_modules.contract "
    "lightning_modules.label_free_cbm.read_words "
    "lightning_modules.phases "  # an edit is a phase
    "datamodules.base datamodules.load datamodules.load_datamodule datamodules.sample "
    "datamodules.photos.photo_files datamodules.photos.one_photo "
    "datamodules.photos.files.TooManyPixelsError datamodules.photos.files.open_image "  # folders of strangers, too
    "datamodules.photos.cache "  # what a model says of training images is remembered there
    "datamodules.transforms.continuity "
    "datamodules.transforms.placement",  # boxes are said in pixels of the photo
    "studies": "explanations metrics.functional lightning_modules.contract lightning_modules.load_model "
    "datamodules.sample datamodules.load_datamodule datamodules.load run_folder "
    "evaluation.explained evaluation.pages evaluation.published evaluation.results evaluation.tables",
    "sweeps": "run_folder evaluation.results evaluation.tables scripts",
}
SCRIPTS = ("scripts",)  # may import every package; only sweeps, which start `train`, import them
OURS = {*MAY_IMPORT, *SCRIPTS, "tests", "benchmarks"}

# package -> third-party packages; packages that are not listed are free
THIRD_PARTY: dict[str, str] = {
    "metrics": "scipy torch torchmetrics",
    "run_folder": "huggingface_hub jsonargparse lightning matplotlib PIL pydantic rich safetensors starlette torch "
    "uvicorn yaml",
    "datamodules": "albumentations cv2 lightning numpy PIL pillow_heif pydantic rich scipy sklearn torch torchvision "
    "yaml",
    "lightning_modules": "lightning safetensors timm torch torchvision scipy sklearn",
    "explanations": "torch PIL matplotlib",
    "sweeps": "jsonargparse matplotlib optuna pydantic rich sqlalchemy yaml",
}


def package_of(path: Path) -> str:
    """The package of a source file, given its path below the root."""
    return path.parts[0]


def imported_names(source: str, path: Path) -> list[tuple[int, str]]:
    """Line and absolute name, below ``protometry``, of everything a source imports, wherever the import stands."""
    package = ("protometry", *path.parts[:-1])
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            names += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    bare = [(line, name) for line, name in names if name.split(".")[0] in OURS]
    assert not bare, f"{path}: expected `protometry.` in front of {bare}"  # a second path makes a second class
    return [(line, name.removeprefix("protometry.")) for line, name in names]


def is_below(name: str, prefix: str) -> bool:
    """Whether a dotted name is a prefix or lies below it."""
    if prefix == "metrics:accuracy":  # the one metric a model may log
        return is_below(name, "metrics") and name.lower().endswith("accuracy")
    return name == prefix or name.startswith(f"{prefix}.")


def test_home_folders_are_expanded_in_one_place():
    sources = (path for name in MAY_IMPORT for path in (ROOT / name).rglob("*.py"))
    names = [p.relative_to(ROOT).as_posix() for p in [*sources, *ROOT.glob("*.py")] if "expanduser" in p.read_text()]
    assert names == ["run_folder/command_line/user_path.py"]


def violations(source: str, path: Path) -> list[str]:
    """Imports of a source file that are not listed."""
    package = package_of(path)
    collected = []
    for line, name in imported_names(source, path):
        top = name.split(".")[0]
        if top in OURS:
            allowed = any(is_below(name, prefix) for prefix in (package, *MAY_IMPORT[package].split()))
        else:
            command = path.name == "__main__.py" and top == "jsonargparse"
            listed = package not in THIRD_PARTY or top in THIRD_PARTY[package].split()
            allowed = top in sys.stdlib_module_names or listed or command
        if not allowed:
            collected.append(f"{path}:{line}: package `{package}` may not import `{name}`")
    return collected


def packages() -> list[str]:
    """Top-level packages that exist."""
    return sorted({init.parent.name for init in ROOT.glob("*/__init__.py")} - {"protometry"})


def test_every_package_is_listed():
    assert set(packages()) == set(MAY_IMPORT)


@pytest.mark.parametrize("package", packages())
def test_packages_import_only_what_is_listed(package):
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    result = [line for file in files for line in violations(file.read_text("utf-8"), file.relative_to(ROOT))]
    assert not result, "\n".join(result)


def test_forbidden_imports_are_found_and_allowed_ones_pass():
    """One of each kind: third-party, ours, relative, inside a function, for type checks."""
    for path, source, name in (
        ("metrics/general/f1.py", "import numpy as np", "numpy"),
        ("metrics/general/f1.py", "from ...datamodules import sample", "datamodules.sample"),
        ("lightning_modules/protopnet.py", "from protometry.metrics import Consistency", "metrics.Consistency"),
        ("lightning_modules/heads/tree.py", "def f():\n    import numpy", "numpy"),
        ("callbacks/pruning.py", "from protometry.scripts.train import main", "scripts.train.main"),
        (
            "explanations/box.py",
            "if T:\n    from protometry.datamodules.sample import Batch",
            "datamodules.sample.Batch",
        ),
    ):
        (result,) = violations(f"import math\n{source}\n", Path(path))
        assert result.startswith(f"{path}:")
        assert f"may not import `{name}" in result
    model = Path("lightning_modules/bases/interpretable.py")
    assert violations("from protometry.metrics import Accuracy\nimport torchvision", model) == []
    assert violations("from jsonargparse import auto_cli", Path("datamodules/__main__.py")) == []
    with pytest.raises(AssertionError, match="in front of"):
        violations("from metrics import Accuracy", model)
