"""A W&B workspace for the runs of a project: which of the logged keys stand together, in which order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NAME = "Protometry"
STEP = "trainer/global_step"  # the axis of all curves


@dataclass(frozen=True)
class Section:
    """One section of the workspace.

    Args:
        title: of the section.
        curves: title of a chart -> the keys it shows, or a regular expression for keys.
        pictures: keys of images, shown with a slider over the steps.
        tables: keys of tables, the newest of each run.
    """

    title: str
    curves: dict[str, tuple[str, ...] | str] = field(default_factory=dict)
    pictures: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


SECTIONS = (
    Section(
        "Training",
        {
            "loss": ("train/loss",),
            "loss of steps": ("train/loss_step",),
            "accuracy": ("train/accuracy", "val/general/accuracy"),
            "phase": ("phase",),
            "epoch of the phase": "^phase/.+",
            "learning rates": "^lr/.+",
        },
        ("media/training",),
    ),
    Section("Explanations of the same images", {}, ("media/explanations",), ("tables/contributions",)),
    Section("Prototypes and other units", {}, ("media/prototypes", "media/units"), ("tables/units",)),
    Section(
        "Confusions",
        {},
        ("media/confusion/val", "media/confusion/test"),
        ("tables/confusion/val", "tables/confusion/test"),
    ),
    Section("Evaluation", {"test accuracy": ("test/general/accuracy",)}, (), ("tables/evaluation/test",)),
)


def workspace(entity: str, project: str = "protometry") -> None:
    """Create the workspace in a project of a W&B account and print where it is.

    Args:
        entity: user or team that owns the project.
        project: that the runs are logged to.

    Raises:
        ValueError: without the package wandb-workspaces or credentials.
    """
    try:
        import wandb
        import wandb_workspaces.reports.v2 as panels
        import wandb_workspaces.workspaces as workspaces
    except ImportError as error:
        raise ValueError(
            f"Expected the package wandb-workspaces ({error}). Install it with `pip install wandb-workspaces`, or lay "
            "the workspace out by hand as docs/dashboards.md says."
        ) from error
    if not wandb.login(prompt=False, verify=False):
        raise ValueError("Expected credentials of W&B, but there are none. Run `wandb login`.")
    made = workspaces.Workspace(
        name=NAME,
        entity=entity,
        project=project,
        sections=[workspaces.Section(name=s.title, panels=_panels(s, panels), is_open=True) for s in SECTIONS],
        settings=workspaces.WorkspaceSettings(x_axis=STEP),
    )
    made.save()
    print(made.url)


def _panels(section: Section, panels: Any) -> list[Any]:
    """Charts, then pictures, then tables."""
    found = [
        panels.LinePlot(title=title, x=STEP, metric_regex=keys)
        if isinstance(keys, str)
        else panels.LinePlot(title=title, x=STEP, y=list(keys))
        for title, keys in section.curves.items()
    ]
    found += [panels.MediaBrowser(title=key, media_keys=[key], mode="gallery") for key in section.pictures]
    return found + [panels.WeavePanelSummaryTable(table_name=key) for key in section.tables]
