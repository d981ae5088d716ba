"""A folder of pages: templates filled in, pictures written once, everything listed with its hash."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import jinja2
import jinja2.bccache
from markupsafe import Markup, escape
from PIL import Image
from pydantic import Field

from protometry.evaluation.explained.explained_model import ExplainedImage, UnitRow
from protometry.explanations.unit_view import BoxView
from protometry.explanations.views import AGAINST, FOR, Box, fit, number_tags
from protometry.run_folder.atomic import append_whole, write_atomic
from protometry.run_folder.lock import LOCK
from protometry.run_folder.schema import Record, check_content, read_json

MANIFEST, UNFINISHED = "manifest.json", "unfinished"
NOTICE = "This report is being written, or its writing was stopped. The next one replaces these files of it:"
NAME = r"^(images/)?[\w.-]*\.(html|webp)$"  # of a file of a report
QUALITY, METHOD = 82, 2  # of WebP; method 4 takes twice as long for files that are 5 % smaller
SHARPEST, NUMBERED = 360, 256  # longer sides of a photo in its file, and of the picture with numbered boxes
ENLARGED = 100  # pixels; smaller pictures are encoded without loss, since pages enlarge them


class Manifest(Record):
    """The list of all files of a report: pages, and pictures in a folder below."""

    files: dict[Annotated[str, Field(pattern=NAME, max_length=255)], dict[str, Any]]


class _Compiled(jinja2.BytecodeCache):
    """Templates that this process has compiled before, which takes longer than to fill them in."""

    def __init__(self) -> None:
        self._codes: dict[str, tuple[str, Any]] = {}

    def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        """Look up a template, unless its text has changed."""
        checksum, code = self._codes.get(bucket.key, ("", None))
        bucket.code = code if checksum == bucket.checksum else None

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        """Keep a template."""
        self._codes[bucket.key] = (bucket.checksum, bucket.code)


_COMPILED = _Compiled()


class Site:
    """Writes the pages of one report.

    Every name is escaped, and equal inputs and library versions give equal bytes.

    Args:
        folder: of the report; None for single pages that hold their pictures.

    Raises:
        FileExistsError: if the folder holds anything that is not an earlier report.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.files: dict[str, dict[str, Any]] = {}
        self.shared: dict[str, Any] = {"navigation": [], "report": ""}  # what every page shows or links to
        self._sources: dict[bytes, str] = {}  # of pictures that were shown before, by what they hold
        self._again: dict[str, str] = {}  # what shows a photo that a page without files holds already
        self._pictures: dict[str, bytes] = {}  # of the page that is filled in, to be written with it
        if folder is not None:
            earlier = _earlier(folder)
            write_atomic(folder / UNFINISHED, "\n".join([NOTICE, *earlier, ""]))
            for name in (*earlier, MANIFEST):
                (folder / name).unlink(missing_ok=True)
        loader = jinja2.PackageLoader("protometry.evaluation.pages", "templates")
        self._templates = jinja2.Environment(
            loader=loader,
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            bytecode_cache=_COMPILED,
        )
        self._templates.globals |= {"FOR": FOR, "AGAINST": AGAINST}
        elements = (self.img, self.whole, self.photo, self.crop, self.numbered)
        self._templates.filters |= {element.__name__: element for element in elements}
        self._templates.filters |= {"num": number, "signed": signed, "percent": percent}

    def img(self, picture: Image.Image, alt: str) -> Markup:
        """The element that shows a picture."""
        size = f'width="{picture.width}" height="{picture.height}"'
        return Markup(f'<img src="{self._file(picture)}" {size} alt="{escape(alt)}" loading="lazy">')

    def whole(self, photo: Image.Image, alt: str) -> Markup:
        """The element that shows a photo."""
        return self._view(photo, alt)

    def photo(self, view: BoxView, alt: str) -> Markup:
        """The element that shows a photo with its boxes."""
        return self._view(view.picture, alt, drawn="".join(map(_rectangle, view.boxes)))

    def crop(self, view: BoxView, alt: str) -> Markup:
        """The element that shows the region of a photo that a unit saw most of."""
        return self._view(view.picture, alt, view.region)

    def numbered(self, image: ExplainedImage, rows: Sequence[UnitRow], alt: str, size: int = NUMBERED) -> Markup:
        """The element that shows a photo with numbered boxes."""
        picture, boxes = image.numbered(rows, size)
        drawn = [_rectangle(box, name) for box in boxes.values() for name in ("edge", "box")]
        for number, tag in number_tags(picture.size, boxes).items():
            x, y, width, height = _span(tag)
            drawn += [_rectangle(tag, "label"), f'<text x="{x + width / 2}" y="{y + height / 2}">{number}</text>']
        scale = image.whole.width / picture.width
        return self._view(image.whole, alt, drawn=f'<g transform="scale({scale:.6g})">{"".join(drawn)}</g>')

    def _view(self, photo: Image.Image, alt: str, region: Box | None = None, drawn: str = "") -> Markup:
        """A region of a photo, and what is drawn on it in pixels of the photo, whose file all elements share."""
        width, height = photo.size
        frame = " ".join(map(str, _span(region or (0, 0, width - 1, height - 1))))
        href = self._file(fit(photo, min(max(width, height), SHARPEST)))
        shown = f'<image href="{href}" width="{width}" height="{height}"/>'
        if self.folder is None:  # the page itself holds its photos, each of them once
            shown = self._again.get(shown) or self._named(shown)
        return Markup(f'<svg role="img" aria-label="{escape(alt)}" viewBox="{frame}">{shown}{drawn}</svg>')

    def _named(self, shown: str) -> str:
        """An element with a name, by which those after it show the same."""
        name = f"photo-{len(self._again)}"
        self._again[shown] = f'<use href="#{name}"/>'
        return shown.replace("<image", f'<image id="{name}"', 1)

    def _file(self, picture: Image.Image) -> str:
        """Where a page finds a picture: its file, which is written with the page if it was not yet, or its data."""
        content = hashlib.sha256(f"{picture.mode} {picture.size}".encode() + picture.tobytes()).digest()
        if content not in self._sources:
            if self.folder is None:
                self._sources[content] = data_uri(picture)
            else:
                data = _webp(picture)
                name = f"images/{hashlib.sha256(data).hexdigest()[:20]}.webp"
                if name not in self.files:
                    self._pictures[name] = data
                self._sources[content] = name
        return self._sources[content]

    def page(self, name: str, template: str, **context: Any) -> str:
        """Fill in a template.

        Returns:
            The text of the page, which is written if there is a folder.
        """
        text = self._templates.get_template(f"{template}.html").render(here=name, **self.shared, **context)
        if self.folder is not None:
            self._write(self._pictures | {name: text.encode()})
            self._pictures = {}
        return text

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write the list of all files, without which the report is not whole."""
        if self.folder is not None:
            versions = {name: version(name) for name in ("torch", "torchvision", "pillow", "jinja2")}
            content = {"versions": versions, **facts, "files": dict(sorted(self.files.items()))}
            text = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True, default=str)
            write_atomic(self.folder / MANIFEST, text + "\n")
            (self.folder / UNFINISHED).unlink()

    def _write(self, files: Mapping[str, bytes]) -> None:
        assert self.folder is not None
        append_whole(self.folder / UNFINISHED, "".join(f"{name}\n" for name in files).encode())  # before they are there
        for name, data in files.items():
            write_atomic(self.folder / name, data)
            self.files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _span(box: Box) -> tuple[int, int, int, int]:
    """Corner, width and height."""
    x0, y0, x1, y1 = box
    return x0, y0, x1 - x0 + 1, y1 - y0 + 1


def _rectangle(box: Box, name: str = "box") -> str:
    x, y, width, height = _span(box)
    return f'<rect class="{name}" x="{x}" y="{y}" width="{width}" height="{height}"/>'


def data_uri(picture: Image.Image) -> str:
    """A picture as the source of an image in a page that needs no other file."""
    return f"data:image/webp;base64,{base64.b64encode(_webp(picture)).decode()}"


def _webp(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    lossless = max(picture.size) < ENLARGED
    picture.save(data, "WEBP", quality=QUALITY, lossless=lossless, method=0 if lossless else METHOD)
    return data.getvalue()


def number(value: float | None, digits: int = 3) -> str:
    """A number with some digits, – for None and NaN.

    Example:
        >>> number(0.123456), number(None), number(1234567.0), number(-0.0)
        ('0.123', '–', '1.23e+06', '0')
    """
    if value is None or value != value:
        return "–"
    return f"{value + 0.0:.{digits}g}"


def signed(value: float | None, digits: int = 3) -> str:
    """The same with its sign, 0 without one, one digit less below 1, and a single one below 0.01.

    Example:
        >>> signed(2.0), signed(-0.3456), signed(0.00123), signed(0.0)
        ('+2.00', '-0.35', '+0.001', '0')
    """
    if not value or value != value:
        return number(value)
    fewer = (abs(value) < 1) + (abs(value) < 0.01)
    return f"{value:+#.{digits - fewer}g}".rstrip(".")


def percent(value: float, digits: int = 1) -> str:
    """A fraction in percent.

    Example:
        >>> percent(0.12345)
        '12.3 %'
    """
    return f"{100 * value:.{digits}f} %"


def key_of(name: str) -> str:
    """The name of a file for any name: the beginning of its hash.

    Example:
        >>> key_of("../<img>")
        'd5b7fd2f8e65'
    """
    return hashlib.sha256(name.encode()).hexdigest()[:12]


def _earlier(folder: Path) -> list[str]:
    """The files of an earlier report, whole or unfinished, in a folder that holds one or nothing."""
    if not folder.exists() or not any(path.name != LOCK for path in folder.iterdir()):
        return []
    if (unfinished := folder / UNFINISHED).is_file():
        return [line for line in unfinished.read_text("utf-8", errors="replace").split("\n") if re.match(NAME, line)]
    try:
        content = read_json(folder / MANIFEST, "")
        check_content(Manifest, content, MANIFEST, "")
    except (OSError, ValueError) as error:
        raise FileExistsError(
            f"Expected {folder} to be free or to hold an earlier report, but it holds other files. Move them away, or "
            "name another folder."
        ) from error
    return list(content["files"])
