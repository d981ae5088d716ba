"""The explorer in a browser: controls on one side, what the model makes of them on the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from html import escape
from typing import Any

import gradio as gr
from PIL import Image

from protometry.evaluation.app.explorer import Changes, Decision, Explorer
from protometry.evaluation.app.places import SIZE, Places, unit_map
from protometry.evaluation.pages.site import data_uri, percent
from protometry.explanations.views import draw_box, fit, scaled_box, to_image
from protometry.run_folder.command_line.messages import counted

LISTED, POINTED = 3, 512  # classes before and after; longer side of the picture to point at, in pixels
FONTS = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}  # none from a network
FITTED = "this.style.height = this.contentDocument.documentElement.scrollHeight + 'px'"
CSS = """
iframe.answer { width: calc(100% + 2rem); margin: 0 -1rem; border: 0; min-height: 30rem; background: white; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: 1rem; max-width: 50rem; }
.figures img { width: 100%; }
"""


def launch(explorer: Explorer, port: int | None = None, show: bool = False, **options: Any) -> Any:
    """Serve the explorer at this machine alone, without a request to any other, until it is stopped."""
    return interface(explorer).launch(
        server_port=port, inbrowser=show, share=False, theme=gr.themes.Default(**FONTS), css=CSS, footer_links=[],
        max_file_size="20mb", show_error=True, ssr_mode=False, **options,
    )  # fmt: skip


def interface(explorer: Explorer) -> gr.Blocks:
    """Its page."""
    explained = explorer.explained
    with gr.Blocks(title="Protometry", analytics_enabled=False, delete_cache=(3600, 3600), fill_width=True) as page:
        active, kind = counted(int(explained.units.active.sum()), explained.units.kind), type(explained.model).__name__
        gr.Markdown(f"# {kind}\n{active}, {counted(len(explained.class_names), 'class')}")
        sample, corner = gr.State(), gr.State()
        with gr.Row():
            with gr.Column(scale=1, min_width=260):
                photo = gr.Image(
                    type="filepath", label="Photo", sources=["upload", "clipboard"], height=220, buttons=[]
                )
                listed = gr.Dropdown(
                    explorer.test_images, value=None, label="Or a test image", visible=explorer.data is not None,
                    allow_custom_value=True,
                )  # fmt: skip
                changes, undo = _controls(explorer, sample)
            with gr.Column(scale=4, min_width=300):
                with gr.Tab("Decision"):
                    said, answer = gr.Markdown("Choose a photo."), gr.HTML()
                with gr.Tab("Region"):
                    pointed = _region(explorer, sample, corner)
                with gr.Tab("All units"):
                    _units(explorer)

        @_explained
        def decide(seen: Any, *values: Any) -> tuple[str, str]:
            if seen is None:
                return "Choose a photo.", ""
            decision = explorer.decide(seen, _changes(explorer, *values))
            frame = f'srcdoc="{escape(decision.answer.page())}" onload="{FITTED}" sandbox="allow-same-origin"'
            return _said(explorer, decision, *values), f'<iframe class="answer" title="Explanation" {frame}></iframe>'

        @_explained
        def read(path: str | None, name: str | None) -> tuple[Any, Any, None, Any, Any]:
            seen = explorer.read(path, name) if path or name else None
            picture = None if seen is None else fit(to_image(seen["image"]), POINTED)
            return seen, picture, None, path, None if path else name

        outputs: list[Any] = [sample, pointed, corner, photo, listed]
        photo.input(lambda path: read(path, None), photo, outputs).success(decide, [sample, *changes], [said, answer])
        listed.input(lambda name: read(None, name), listed, outputs).success(decide, [sample, *changes], [said, answer])
        gr.on([control.change for control in changes if control.visible], decide, [sample, *changes], [said, answer])
        if explorer.test_images:  # the first, for a start
            first = page.load(lambda: read(None, explorer.test_images[0]), None, outputs)
            first.success(decide, [sample, *changes], [said, answer])
        undo.click(lambda: [control.value for control in changes], None, changes)
    return page


def _controls(explorer: Explorer, sample: gr.State) -> tuple[list[Any], gr.Button]:
    """What a person changes: units, last layer, concepts."""
    off, there = bool(explorer.units), bool(explorer.concepts)
    units, concepts = _named(explorer, explorer.units), _named(explorer, explorer.concepts)
    several: dict[str, Any] = {"multiselect": True, "value": []}
    controls = [
        gr.Dropdown(units, label="Switch off", visible=off, **several),
        gr.Checkbox(False, label="Fit the last layer to the others", visible=explorer.fits),
        gr.Dropdown(concepts, label="Concepts that are there", visible=there, **several),
        gr.Dropdown(concepts, label="Concepts that are not there", visible=there, **several),
        gr.State(0),
    ]
    if explorer.path is not None:
        last = len(explorer.path.penalties) - 1
        controls[-1] = gr.Slider(0, last, explorer.path.chosen, step=1, label="Step of λ, fewest weights first")
    annotated = gr.Button("Correct all concepts as annotated", visible=there and explorer.data is not None, size="sm")

    def correct(seen: Any) -> tuple[list[int], list[int]]:
        truth = {} if seen is None else explorer.annotated(seen)
        return [unit for unit, shown in truth.items() if shown], [unit for unit, shown in truth.items() if not shown]

    annotated.click(correct, sample, controls[2:4])
    return controls, gr.Button("Undo all changes", size="sm")


def _region(explorer: Explorer, sample: gr.State, corner: gr.State) -> gr.Image:
    """Two clicks make a box, and training photos that look like it are shown."""
    places = Places(explorer)
    what = "training photos" if explorer.data is not None else "photos that stand for units"
    said = gr.Markdown(f"Click two corners of a box: the {what} that look most like it follow.")
    picture = gr.Image(label="Photo to point at", show_label=False, interactive=False, width=POINTED, buttons=[])
    found = gr.HTML()

    @_explained
    def point(seen: Any, first: Any, event: gr.SelectData) -> tuple[Any, Any, str, Any]:
        if seen is None or not places.there:
            return None, gr.skip(), "There is no photo yet, or there are no photos to compare it with.", ""
        whole = to_image(seen["image"])
        shown = fit(whole, POINTED)
        x, y = (min(max(at, 0), side - 1) for at, side in zip(event.index, shown.size, strict=True))
        corners = [(x, y), first or (x, y)]
        (left, right), (top, bottom) = (sorted(map(int, values)) for values in zip(*corners, strict=True))
        box = left, top, right, bottom
        marked = draw_box(shown, box)
        if first is None:
            return (x, y), marked, "Now the opposite corner.", gr.skip()
        near = places.nearest(seen, scaled_box(box, shown, whole))
        pictures = [(view.photo, f"{value:.3f} {label}, {name}") for value, view, name, label in near]
        told = "The cosine similarity of the box to what is most like it in each photo."
        return None, marked, told, _figures(pictures)

    picture.select(point, [sample, corner], [corner, picture, said, found])
    return picture


def _units(explorer: Explorer) -> None:
    """A map of all units; a click or a name selects one."""
    drawn = unit_map(explorer)
    if drawn is not None:
        gr.Markdown(f"The first two principal components of the {drawn.of} of the units, coloured by class. Click one.")
    chart = gr.Image(
        drawn and drawn.picture, label="Map", show_label=False, interactive=False, buttons=[], visible=drawn is not None
    )
    chosen = gr.Dropdown(_named(explorer, explorer.active), value=None, label="Unit")
    photos = gr.HTML()

    @_explained
    def show(unit: int | None) -> tuple[Any, Any]:
        if unit is None:
            return gr.skip(), ""
        with explorer.alone:
            source = explorer.sources.of([unit]).get(unit)
        marked = unit_map(explorer, unit)
        if source is None:
            return marked and marked.picture, ""
        name = explorer.explained.unit_name(unit)
        view, text = replace(source.view, size=SIZE), f"{source.class_name}, {source.origin} {source.sample_id}"
        return marked and marked.picture, _figures([(view.crop, name), (view.photo, text)])

    def clicked(event: gr.SelectData) -> int | None:
        return None if drawn is None else drawn.at(*event.index)

    chosen.change(show, chosen, [chart, photos])
    chart.select(clicked, None, chosen)


def _figures(pictures: Sequence[tuple[Image.Image, str]]) -> str:
    """Pictures with their captions."""
    shown = [(data_uri(picture), escape(text)) for picture, text in pictures]
    figures = [f'<figure><img src="{uri}" alt="{text}"><figcaption>{text}</figcaption></figure>' for uri, text in shown]
    return f'<div class="figures">{"".join(figures)}</div>'


def _named(explorer: Explorer, units: Sequence[int]) -> list[tuple[str, int]]:
    """What units are called, prototypes with the classes that own them."""
    explained, choices = explorer.explained, []
    for unit in units:
        owners = explorer.table.owner[unit].nonzero().flatten().tolist()
        of = "" if explained.units.kind == "concept" or len(owners) != 1 else f" ({explained.class_names[owners[0]]})"
        choices.append((f"{explained.unit_name(unit)}{of}", unit))
    return choices


def _changes(explorer: Explorer, off: list[int], fit: bool, shown: list[int], absent: list[int], step: int) -> Changes:
    """The controls as changes.

    Raises:
        ValueError: if a concept is said to be there and not to be.
    """
    if both := set(shown) & set(absent):
        name = explorer.explained.unit_name(min(both))
        raise ValueError(f"Expected each concept to be there or not, but {name} is in both lists.")
    concepts = dict.fromkeys(shown, True) | dict.fromkeys(absent, False)
    return Changes(frozenset(off), concepts, step if explorer.path else None, fit)


def _said(explorer: Explorer, decision: Decision, off: list[int], fit: bool, *others: Any) -> str:
    """The most probable classes before and after, what the last layer is, and how to keep the change."""
    names, (before, now) = explorer.explained.class_names, (decision.before, decision.now)
    top = before.maximum(now).argsort(descending=True, stable=True)[:LISTED].tolist()
    rows = [
        f"| {escape(names[label])} | {percent(float(before[label]))} | {percent(float(now[label]))} |" for label in top
    ]
    lines = ["| class | as trained | as changed |", "|---|---:|---:|", *rows, ""]
    if explorer.path is not None and not (fit and off):
        step = others[-1]
        layer = explorer.path.weights[step] != 0
        per_class, used = float(layer.sum() / len(names)), counted(int(layer.any(dim=0).sum()), "unit")
        lines += [f"λ = {explorer.path.penalties[step]:.3g}: {per_class:.1f} weights per class, {used}.", ""]
    if off and explorer.removable:
        lines.append(f"To keep it: <code>protometry edit RUN --remove {','.join(map(str, sorted(off)))}</code>")
    return "\n".join(lines)


def _explained(function: Callable[..., Any]) -> Callable[..., Any]:
    """The errors that a person can mend are shown."""

    @wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except (ValueError, FileNotFoundError) as error:
            raise gr.Error(str(error), print_exception=False) from error

    return wrapped
