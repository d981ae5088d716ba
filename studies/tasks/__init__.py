"""What participants are asked about a photo: one file per task, named as in ``study.yaml``."""

from __future__ import annotations

from importlib import import_module

from protometry.studies.study import Form, TaskName
from protometry.studies.tasks.task import Task

__all__ = ["Task", "task_of"]


def task_of(name: TaskName, form: Form) -> Task:
    """A task with a form of explanation: what ``task`` of ``studies/tasks/<name>.py`` returns."""
    task: Task = import_module(f"protometry.studies.tasks.{name}").task(form)
    return task
