"""Pages of the site that lie outside ``docs/``: README, changelog, the files that a page links to, and all metrics.

Links keep the form that the code host needs; here their targets become pages, so that the site needs no other host.
"""

from __future__ import annotations

import posixpath
import re
from functools import partial
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, InclusionLevel

from protometry import lightning_modules
from protometry.metrics.page import tables
from protometry.metrics.suite import FAMILIES

ROOT = Path(__file__).parents[2]
TEXTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>[^()#\s:]+)(?P<anchor>#[^)]*)?\)")
METRICS = """\
# All metrics

One row for each key of `metrics.json`, made from the code. [Read the numbers](read_the_numbers.md) explains the
file, and [papers](papers.md) the short names. ↑: higher is better, as in the source. Fractions are printed in
percent. *Top-5 units* are the five active units with the largest scores on the clean image; s is a score, w a weight
of the head, and a prime marks the perturbed image.

"""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".cff": "yaml"}
CSS = """\
.md-grid { max-width: 80rem; }
.md-typeset table:not([class]) { font-size: .62rem; overflow: visible; }
.md-typeset table:not([class]) :is(th, td) { min-width: 0; padding: .5em .7em; }
.md-typeset table:not([class]) td:nth-child(9):last-child:not([style]) { min-width: 9rem; }
.md-typeset table:not([class]) td[style*=right] { white-space: nowrap; }
.md-typeset table:not([class]) :is(th, td) code { word-break: normal; }
@media (min-width: 60em) {
  .md-typeset table:not([class]) :is(th, td):first-child { position: sticky; left: 0; background: white; }
}
"""


def target(page: str, path: str) -> str:
    """The path below the root of what a page, also below the root, links to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))


def site_path(path: str) -> str:
    """The page of a file, both as paths: below the folder of the pages and below the root."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if path.endswith(".md") else f"{path}.md"


def source_page(path: str) -> str:
    """A page with the text of a file."""
    text = (ROOT / path).read_text("utf-8")
    return f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n````{LANGUAGES.get(Path(path).suffix, '')}\n{text}\n````\n"


def on_config(config: Any) -> Any:
    """List the pages of the models, by the names on their cards, behind the page that compares them."""
    models = next(entry["Models"] for entry in config.nav if "Models" in entry)
    cards = [
        card for name in lightning_modules.__all__ if (card := getattr(lightning_modules, name).__dict__.get("card"))
    ]
    models[1:1] = [{card.name: f"models/{card.page}"} for card in cards if card and "#" not in card.page]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside the folder of the pages."""
    texts = {name: (ROOT / name).read_text("utf-8") for name in TEXTS}
    pages = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()} | texts
    linked = {target(page, link["path"]) for page, text in pages.items() for link in LINK.finditer(text)}
    outside = {path for path in linked if not path.startswith("docs/") and (ROOT / path).is_file()}
    for name in sorted(outside - {*TEXTS}):
        files.append(
            File.generated(config, site_path(name), content=source_page(name), inclusion=InclusionLevel.NOT_IN_NAV)
        )
    for name, text in texts.items():
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, "metrics.md", content=METRICS + tables(FAMILIES.values())))
    files.append(File.generated(config, "site.css", content=CSS))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to where their targets are on the site; a folder has no page and loses its link."""
    here = page.file.src_uri
    return LINK.sub(partial(moved, here, here if here in TEXTS else f"docs/{here}"), markdown)


def moved(here: str, page: str, link: re.Match[str]) -> str:
    """A link of the page ``page`` of the repository, as the page ``here`` of the site needs it."""
    path = target(page, link["path"])
    if (ROOT / path).is_dir():
        return link["text"]
    if not (ROOT / path).is_file():
        return link[0]  # no link but code, or one that mkdocs refuses
    return f"[{link['text']}]({posixpath.relpath(site_path(path), posixpath.dirname(here))}{link['anchor'] or ''})"
