"""Pages as HTML: what a participant sees, from the study, the texts and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from studies.bundle import Bundle
from studies.flow import Step
from studies.grading import believed, is_right
from studies.questions import NO_SWITCH, Answers, letters
from studies.server.platforms import WayBack
from studies.study import TREE_LEAVES, Arm
from studies.texts import texts

NO_WAY_BACK = WayBack()


class Pages:
    """Renders the pages of a study.

    Args:
        bundle: the study.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.say = texts(bundle.study.language)
        self._templates = Environment(
            loader=PackageLoader("studies.server"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True,
        )  # fmt: skip
        items = [item for arm in bundle.study.arms for item in arm.items]
        labels = [name for item in items for name in (*item.leaves, *(option.label for option in item.options))]
        self._common = {"study": bundle.study, "say": self.say, "letters": letters(self.say), "labels": any(labels)}

    def message(self, name: str, start: str = "", code: str = "", back: WayBack = NO_WAY_BACK) -> str:
        """A page with a message of the texts.

        Args:
            name: of the message.
            start: link of a button that begins the study.
            code: completion code.
            back: way to the platform.
        """
        message = self.say["messages"][name]
        return self._render("message.html", message=message, start=start, code=code, back=back)

    def step(  # noqa: PLR0913
        self, way: list[Step], index: int, tokens: tuple[str, str], *,
        given: Mapping[str, str] | None = None, errors: Mapping[str, str] | None = None, note: str = "",
        earlier: Mapping[int, Answers] | None = None, read_only: bool = False,
    ) -> str:  # fmt: skip
        """The page of a step.

        Args:
            way: all pages of the participant.
            index: of the page.
            tokens: of the page and of withdrawing.
            given: values of fields that were sent.
            errors: messages by question.
            note: name of a message above the page.
            earlier: answers of the participant, by step, for the own result.
            read_only: show the values without a way to send them.
        """
        step = way[index]
        page = step.page.split(".")[0]
        number = sum(one.item is not None for one in way)
        cards = sum(one.page.startswith("warm_up.") for one in way)
        return self._render(
            "page.html",
            arm=step.arm,
            step=step,
            page=page,
            title=self.say["titles"][page].format(number=step.number, of=number if step.item else cards),
            leaves=[self.say["warm_up"]["leaf"].format(letter=letter) for letter in "ABCD"],
            tree_leaves=TREE_LEAVES,
            paragraphs=[part for part in self.bundle.consent.split("\n\n") if part.strip()],
            index=index,
            pages=len(way),
            tokens=tokens,
            given=given or {},
            errors=errors or {},
            note=self.say["messages"][note] if note else None,
            result=self._result(way, step.arm, earlier or {}) if page == "result" else "",
            questions={question.name: question for question in step.questions},
            read_only=read_only,
        )

    def _result(self, way: list[Step], arm: Arm, earlier: Mapping[int, Answers]) -> str:
        """How many items of an arm were answered rightly."""
        study, key = self.bundle.study, self.bundle.key.items
        seen = [
            (step.item, earlier[number])
            for number, step in enumerate(way)
            if step.item and step.arm is arm and number in earlier
        ]
        pairs = [(key[item.id], answers) for item, answers in seen]
        facts = {"score": sum(is_right(study, one, answers) for one, answers in pairs), "of": len(pairs)}
        if study.task == "agreement":
            for name, kind in (("right", True), ("wrong", False)):
                belief = [believed(answers) for one, answers in pairs if one.right == kind]
                facts |= {name: len(belief), f"believed_{name}": sum(belief)}
        text: str = self.say["result"][study.task].format(**facts)
        return text

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
