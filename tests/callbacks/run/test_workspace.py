"""The W&B workspace, made with a stand-in for the package that talks to the server."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import wandb

from callbacks import __main__
from callbacks.run.workspace import SECTIONS
from tests.pages import DOCS


def every_key():
    curves = [keys for section in SECTIONS for keys in section.curves.values() if not isinstance(keys, str)]
    return {key for keys in (*curves, *(s.pictures + s.tables for s in SECTIONS)) for key in keys}


@pytest.fixture
def package(monkeypatch):
    """The classes of wandb-workspaces 0.4 that are used, which only remember their arguments."""
    made = SimpleNamespace(saved=[])
    names = (
        "wandb_workspaces",
        "wandb_workspaces.reports",
        "wandb_workspaces.reports.v2",
        "wandb_workspaces.workspaces",
    )
    modules = {name: ModuleType(name) for name in names}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        if "." in name:
            setattr(modules[name.rpartition(".")[0]], name.rpartition(".")[2], module)
    for name in ("LinePlot", "MediaBrowser", "WeavePanelSummaryTable"):
        setattr(modules[names[2]], name, lambda kind=name, **options: (kind, options))
    for name in ("Section", "WorkspaceSettings"):
        setattr(modules[names[3]], name, SimpleNamespace)

    def workspace(**options):
        return SimpleNamespace(**options, url="https://wandb.ai/me/birds", save=lambda: made.saved.append(options))

    modules[names[3]].Workspace = workspace
    return made


def test_the_workspace_shows_every_section(package, offline, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.delenv("WANDB_MODE")
    wandb.teardown()
    __main__.main(["workspace", "--entity", "me", "--project", "birds"])
    (saved,) = package.saved
    assert (saved["entity"], saved["project"]) == ("me", "birds")
    assert [section.name for section in saved["sections"]] == [section.title for section in SECTIONS]
    panels = [panel for section in saved["sections"] for panel in section.panels]
    shown = {key for _, options in panels for key in [*options.get("media_keys", ()), *options.get("y", ())]}
    shown |= {options["table_name"] for _, options in panels if "table_name" in options}
    assert shown == every_key()
    assert [options["metric_regex"] for _, options in panels if "metric_regex" in options] == ["^phase/.+", "^lr/.+"]
    assert capsys.readouterr().out == "https://wandb.ai/me/birds\n"


def test_without_credentials_nothing_is_made(package, offline):
    with pytest.raises(ValueError, match="Expected credentials of W&B, but there are none"):
        __main__.main(["workspace", "--entity", "me"])
    assert package.saved == []


def test_without_the_package_it_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
    with pytest.raises(ValueError, match=r"`pip install wandb-workspaces`, or lay .* docs/dashboards\.md says"):
        __main__.main(["workspace", "--entity", "me"])


def test_the_page_describes_the_same_workspace():
    page = (DOCS / "dashboards.md").read_text("utf-8")
    for section in SECTIONS:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {section.title} |")]
        curves = [keys if isinstance(keys, str) else ", ".join(keys) for keys in section.curves.values()]
        for key in (*section.pictures, *section.tables, *", ".join(curves).split(", ")):
            assert not key or f"`{key}`" in row, key
