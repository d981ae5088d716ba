"""Where things are: metadata in one file, one package of links, short files."""

from __future__ import annotations

import subprocess
import tomllib
from configparser import ConfigParser
from fnmatch import fnmatch
from pathlib import Path

import pytest

import protometry

ROOT = Path(__file__).parents[1]
PACKAGES = {init.parent.name for init in ROOT.glob("*/__init__.py")} - {"protometry"}
FOLDERS = PACKAGES | {"protometry", "configs", "benchmarks", "docs", "examples", "tests", ".ci", ".github"}
FILES = (
    "setup.cfg pyproject.toml ruff.toml .gitignore train.py evaluate.py README.md LICENSE CHANGELOG.md CITATION.cff "
    "CONTRIBUTING.md Containerfile"
)
MAX_LINES = 400


def unexpected(tracked: list[str]) -> list[str]:
    """Tracked paths whose first part has no place at the top level."""
    return [path for path in tracked if path.split("/")[0] not in (FOLDERS if "/" in path else FILES.split())]


def too_long(root: Path) -> list[str]:
    """Source files above the limit, with their number of lines."""
    folders = (*PACKAGES, "protometry", "benchmarks")
    files = [*root.glob("*.py"), *(file for folder in folders for file in (root / folder).rglob("*.py"))]
    lengths = {file.relative_to(root).as_posix(): len(file.read_text("utf-8").splitlines()) for file in files}
    return [f"{name}: {length} lines" for name, length in sorted(lengths.items()) if length > MAX_LINES]


def test_the_package_has_a_link_to_each_folder():
    """Wheels contain what the links lead to; type checkers and editors follow them."""
    package = ROOT / "protometry"
    links = {path.name: path.resolve() for path in package.iterdir() if path.is_symlink()}
    assert links == {name: (ROOT / name).resolve() for name in PACKAGES | {"configs"}}
    scripts = {path.name: path.resolve() for path in (package / "scripts").iterdir() if path.is_symlink()}
    assert scripts == {file.name: file.resolve() for file in ROOT.glob("*.py")}
    assert Path(protometry.__file__).parent == package, "another protometry comes first on the path"


def unpacked(tracked: list[str], declared: dict[str, str]) -> list[str]:
    """Files of packages, such as templates, that a wheel would leave out."""
    missing = []
    for name in (name for name in tracked if name.split("/")[0] in PACKAGES and not name.endswith(".py")):
        package = next(folder for folder in Path(name).parents if (ROOT / folder / "__init__.py").is_file())
        patterns = declared.get(".".join(("protometry", *package.parts)), "").split(",")
        path = Path(name).relative_to(package).as_posix()
        missing += [] if any(fnmatch(path, pattern.strip()) for pattern in patterns) else [name]
    return missing


def test_wheels_hold_templates_and_tables():
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    tracked = [path.relative_to(ROOT).as_posix() for name in PACKAGES for path in (ROOT / name).rglob("*.*")]
    tracked = [name for name in tracked if "__pycache__" not in name and (ROOT / name).is_file()]
    assert unpacked(tracked, dict(config["options.package_data"])) == []
    assert unpacked(["evaluation/pages/templates/base.html"], {"protometry.evaluation.pages": "published.json"}) != []


def test_setup_cfg_owns_the_metadata():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert set(pyproject) == {"build-system"}
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert config["metadata"]["name"] == "protometry"
    assert {"metadata", "options", "options.extras_require", "tool:pytest", "mypy", "coverage:run"} <= set(config)
    assert not (ROOT / "setup.py").exists()


def test_top_level_holds_only_what_belongs_there():
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode != 0 or not listing.stdout:
        pytest.skip(f"not a git checkout with tracked files: {listing.stderr.strip()}")
    assert unexpected(listing.stdout.splitlines()) == []


def test_source_files_are_short():
    assert too_long(ROOT) == []
