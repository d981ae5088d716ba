"""A browser without JavaScript: it reads the form of a page, and sends only what the page offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class PageForm:
    """The form that answers a page.

    Attributes:
        hidden: names and values of its hidden fields.
        offered: allowed values of every field, None for free text.
        pictures: addresses of the pictures on the page.
    """

    hidden: dict[str, str] = field(default_factory=dict)
    offered: dict[str, set[str] | None] = field(default_factory=dict)
    pictures: list[str] = field(default_factory=list)

    def filled(self, answers: Mapping[str, str]) -> dict[str, str]:
        """The fields that are sent with some answers.

        Raises:
            ValueError: if the page does not offer an answer.
        """
        for name, value in answers.items():
            allowed = self.offered.get(name, set())
            if allowed is not None and value not in allowed:
                raise ValueError(f"The page does not offer {value!r} for {name!r}: it has {sorted(self.offered)}.")
        texts = {name: "" for name, allowed in self.offered.items() if allowed is None}
        return {**self.hidden, **texts, **answers}


def read_page(html: str) -> PageForm:
    """The form with the id ``answers`` of a page; empty if there is none."""
    reader = _Reader()
    reader.feed(html)
    return reader.form


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.form = PageForm()
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = values.get("id") == "answers"
        elif tag == "img":
            self.form.pictures.append(values["src"])
        elif self._inside and tag == "textarea":
            self.form.offered[values["name"]] = None
        elif self._inside and tag == "input":
            name, value = values["name"], values.get("value", "on")
            if values["type"] == "hidden":
                self.form.hidden[name] = value
            elif values["type"] == "text":
                self.form.offered[name] = None
            else:
                known = self.form.offered.setdefault(name, set())
                assert known is not None
                known.add(value)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
