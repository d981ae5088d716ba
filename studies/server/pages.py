"""Pages as HTML: what a participant sees, from the study, the texts and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from protometry.studies.bundle import Bundle
from protometry.studies.flow import Page
from protometry.studies.questions import NO_SWITCH, Answers, letters
from protometry.studies.study import Arm
from protometry.studies.tasks import task_of
from protometry.studies.texts import texts

EMPTY: dict[str, Any] = {"given": {}, "errors": {}, "earlier": {}, "read_only": False}
MEDIA_TYPES = {"png": "image/png", "webp": "image/webp", "jpg": "image/jpeg"}


class Pages:
    """The pages of a study."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.say = texts(bundle.study.language)
        self._templates = Environment(
            loader=PackageLoader("protometry.studies.server"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        items = [item for arm in bundle.study.arms for item in arm.items]
        labels = [name for item in items for name in (*item.leaves, *(option.label for option in item.options))]
        self._common = {
            "study": bundle.study,
            "say": self.say,
            "letters": letters(self.say),
            "labels": any(labels),
        }

    def message(
        self, name: str, *, start: str = "", code: str = "", link: str = "", is_unpaid: bool = False, withdraw: str = ""
    ) -> str:
        """A page with a message of the texts; ``start`` is where its button leads, ``withdraw`` the token for it."""
        return self._render(
            "message.html", name=name, start=start, code=code, link=link, is_unpaid=is_unpaid, withdraw=withdraw
        )

    def step(self, way: list[Page], index: int, tokens: tuple[str, str], *, note: str = "", **values: Any) -> str:
        """The page of a step; ``values`` are answers ``given`` and ``earlier``, ``errors``, and ``read_only``."""
        step = way[index]
        page = step.page.split(".")[0]
        number = sum(one.item is not None for one in way)
        cards = sum(one.page.startswith("warm_up.") for one in way)
        values, task = EMPTY | values, self.bundle.tasks[step.arm.id]
        return self._render(
            "page.html",
            tokens=tokens,
            note=self.say["messages"][note] if note else None,
            arm=step.arm,
            step=step,
            page=page,
            title=self.say["titles"][page].format(number=step.number, of=number if step.item else cards),
            leaves=[self.say["warm_up"]["leaf"].format(letter=letter) for letter in "ABCD"],
            task=task,
            chance=f"{100 * task.chance:g}",
            paragraphs=[part for part in self.bundle.consent.split("\n\n") if part.strip()],
            index=index,
            pages=len(way),
            result=self._result(way, step.arm, values["earlier"]) if page == "result" else "",
            questions={question.name: question for question in step.questions},
            **values,
        )

    def _result(self, way: list[Page], arm: Arm, earlier: Mapping[int, Answers]) -> str:
        """How many items of an arm were answered correctly."""
        study, key = self.bundle.study, self.bundle.key.items
        task = task_of(study.task, arm.form)
        answered = [
            (step.item, key[step.item.id], earlier[number])
            for number, step in enumerate(way)
            if step.item and step.arm is arm and arm.is_scored(step.item) and number in earlier
        ]
        facts = {"score": sum(task.is_right(*one) for one in answered), "of": len(answered)}
        for name, kind in (("right", True), ("wrong", False)):
            belief = [task.chosen(item, answers) is not None for item, one, answers in answered if one.right == kind]
            facts |= {name: len(belief), f"believed_{name}": sum(belief)}
        text: str = self.say["result"][study.task].format(**facts)
        return f"{text} {self.say['result']['checks']}" if arm.checks else text

    def _render(self, template: str, **values: Any) -> str:
        return self._templates.get_template(template).render(**self._common, **values)


def fields_of(answers: Answers) -> dict[str, str]:
    """Stored answers as the fields of a form would send them."""
    fields = {}
    for name, value in answers.items():
        if value == NO_SWITCH:
            fields[f"{name}.none"] = "yes"
        elif value is not None:
            fields[name] = f"{value:g}" if isinstance(value, float) else str(value)
    return fields
