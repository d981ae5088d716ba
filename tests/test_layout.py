"""What lies where: metadata in one place, typed packages, short files, and our package names not taken by others."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import tomllib
from configparser import ConfigParser
from fnmatch import fnmatch
from pathlib import Path

import pytest

import protometry

ROOT = Path(__file__).parents[1]
ROOMS = set(protometry.ROOMS)
FOLDERS = ROOMS | {"configs", "benchmarks", "docs", "examples", "tests", ".ci", ".github"}
FILES = {
    *("setup.cfg", "pyproject.toml", "ruff.toml", ".gitignore", "protometry.py", "train.py", "evaluate.py"),
    *("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md"),
}
MAX_LINES = 400


def packages() -> list[str]:
    """Top-level packages that exist."""
    return sorted(init.parent.name for init in ROOT.glob("*/__init__.py"))


def shadow(module: str) -> str | None:
    """Why ``import module`` would not give ours, or None if it does."""
    spec = importlib.util.find_spec(module)
    file = Path(spec.origin if spec and spec.origin else "nothing")
    if file.resolve().is_relative_to(ROOT.resolve()):
        return None
    owners = ", ".join(importlib.metadata.packages_distributions().get(module, ["no distribution"]))
    return f"`import {module}` gives {file} of {owners}: uninstall it, or put the repository first on the path"


def unexpected(tracked: list[str]) -> list[str]:
    """Tracked paths whose first part has no place at the top level."""
    return [path for path in tracked if path.split("/")[0] not in (FOLDERS if "/" in path else FILES)]


def too_long(root: Path) -> list[str]:
    """Source files above the limit, with their number of lines."""
    files = [*root.glob("*.py"), *(file for folder in (*ROOMS, "benchmarks") for file in (root / folder).rglob("*.py"))]
    lengths = {file.relative_to(root).as_posix(): len(file.read_text("utf-8").splitlines()) for file in files}
    return [f"{name}: {length} lines" for name, length in sorted(lengths.items()) if length > MAX_LINES]


@pytest.mark.parametrize("module", [*packages(), *sorted(file.stem for file in ROOT.glob("*.py"))])
def test_our_modules_are_not_shadowed(module):
    assert shadow(module) is None


def test_packages_are_rooms():
    assert set(packages()) == ROOMS


@pytest.mark.parametrize("package", packages())
def test_packages_are_typed_and_packed(package):
    assert (ROOT / package / "py.typed").is_file()
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    patterns = config["options.packages.find"]["include"].split()
    assert any(fnmatch(package, pattern) for pattern in patterns), f"{package} is not in [options.packages.find]"
    assert config["options.package_data"]["*"] == "py.typed"


def unpacked(tracked: list[str], declared: dict[str, str]) -> list[str]:
    """Files of packages, such as templates, that a wheel would leave out."""
    missing = []
    for name in (name for name in tracked if name.split("/")[0] in ROOMS and not name.endswith(".py")):
        package = next(folder for folder in Path(name).parents if (ROOT / folder / "__init__.py").is_file())
        patterns = f"{declared['*']},{declared.get('.'.join(package.parts), '')}".split(",")
        path = Path(name).relative_to(package).as_posix()
        missing += [] if any(fnmatch(path, pattern.strip()) for pattern in patterns) else [name]
    return missing


def test_wheels_hold_templates_and_tables():
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    tracked = [path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*.*")]
    tracked = [name for name in tracked if "__pycache__" not in name and (ROOT / name).is_file()]
    assert unpacked(tracked, dict(config["options.package_data"])) == []
    assert unpacked(["reports/templates/base.html"], {"*": "py.typed", "reports": "published.json"}) != []


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
