"""The app in Chromium, without a network: each control changes what is shown as the same change in Python does."""

import re
import socket

import pytest
import torch
from PIL import Image

from protometry.evaluation.app.explorer import Changes, Explorer
from protometry.evaluation.app.places import Places, unit_map
from protometry.evaluation.demo import RUN
from protometry.evaluation.pages.contrast import contrast_of
from protometry.evaluation.pages.site import percent
from protometry.evaluation.trained_model import TrainedModel
from protometry.run_folder.layout import LAST
from tests.callbacks.phases.solved import solved
from tests.lightning_modules.registry import tiny_birds
from tests.untrained import saved, stored

pytestmark = pytest.mark.browser


@pytest.fixture
def shown(chromium, monkeypatch):
    """Serves a model, and opens its page; in the end, nothing was asked of another machine, and nothing went wrong."""
    gradio, problems, closed, connect = pytest.importorskip("gradio"), [], [], socket.socket.connect
    from protometry.evaluation.app.interface import launch

    def watched(self, address):
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "localhost"):
            problems.append(address)
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", watched)

    def show(explorer, width):
        _, address, _ = launch(explorer, prevent_thread_lock=True, quiet=True)
        page = chromium.new_page(viewport={"width": width, "height": 900})
        page.on("console", lambda said: said.type == "error" and problems.append(said.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request", lambda asked: asked.url.startswith((address, "data:", "blob:")) or problems.append(asked.url)
        )
        page.goto(address)
        closed.append(page)
        return page

    yield show
    for page in closed:
        page.close()
    gradio.close_all()
    assert problems == []


def choose(page, label, text):
    """Type into a list, and take what is offered."""
    field = page.get_by_label(label)
    field.click()
    field.fill(text)
    field.press("Enter")
    field.press("Escape")


def expect(page, explorer, decision, width):
    """The heading, the probabilities and the bars are those of a decision."""
    answer, name = decision.answer, decision.answer.explained
    inside = page.frame_locator("iframe.answer")
    heading = f"{answer.photo}: predicted {name}, {percent(answer.probability)}"
    inside.locator("h1", has_text=re.compile(f"^{re.escape(heading)}$")).wait_for()
    bars = [bar.value for bar in contrast_of(decision.image, explorer.explained)["bars"]]
    assert inside.locator(".reasons .n").all_inner_texts() == bars
    label = decision.image.label
    row = [name, percent(float(decision.before[label])), percent(float(decision.now[label]))]
    page.locator("tr:visible", has=page.get_by_role("cell", name=row[0], exact=True)).filter(has_text=row[2]).wait_for()
    assert row in [each.locator("td").all_inner_texts() for each in page.locator("tbody tr").all()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 1280])
def test_units_last_layers_regions_and_the_map(width, shown, tmp_path):
    model, _ = solved(tmp_path)
    torch.save(stored(model, tiny_birds()), tmp_path / "x.ckpt")
    explorer = Explorer(TrainedModel(tmp_path / "x.ckpt"))
    name, page = explorer.test_images[2], shown(explorer, width)
    sample, last = explorer.read(sample_id=name), len(explorer.path.penalties) - 1
    choose(page, "Or a test image", name)
    expect(page, explorer, explorer.decide(sample), width)
    step = page.get_by_role("spinbutton", name="λ")
    step.fill(str(last))
    step.press("Enter")
    dense = explorer.decide(sample, Changes(step=last))
    expect(page, explorer, dense, width)
    assert page.get_by_text(f"λ = {explorer.path.penalties[last]:.3g}").is_visible()
    unit = dense.image.tables[0][1][0].line.unit
    choose(page, "Switch off", f"prototype {unit} ")
    off = frozenset([unit])
    expect(page, explorer, explorer.decide(sample, Changes(off, step=last)), width)
    assert page.get_by_text(f"protometry edit RUN --remove {unit}").is_visible()
    page.get_by_label("Fit the last layer").check()
    expect(page, explorer, explorer.decide(sample, Changes(off, step=last, fit=True)), width)
    page.get_by_role("button", name="Undo all changes").click()
    expect(page, explorer, explorer.decide(sample), width)
    page.get_by_role("tab", name="Region").click()
    picture = page.locator("img:visible").first
    side = picture.bounding_box()["width"]
    for share, said in ((0.25, "Now the opposite corner"), (0.75, "The cosine similarity")):
        picture.click(position={"x": share * side, "y": share * side})
        page.get_by_text(said).wait_for()
    found = Places(explorer).nearest(sample, (8, 8, 23, 23))
    captions = [f"{value:.3f} {label}, {photo}" for value, _, photo, label in found]
    assert page.locator("figcaption:visible").all_inner_texts() == captions
    page.get_by_role("tab", name="All units").click()
    drawn, chart = unit_map(explorer), page.locator("img:visible").first
    scale = chart.bounding_box()["width"] / drawn.picture.width
    x, y = (scale * drawn.points[-1]).tolist()
    chart.click(position={"x": x, "y": y})
    source = explorer.sources.of([drawn.units[-1]])[drawn.units[-1]]
    page.locator("figcaption:visible", has_text=f"{source.origin} {source.sample_id}").wait_for()
    assert page.locator("figcaption:visible").first.inner_text() == f"prototype {drawn.units[-1]}"


def test_concepts_are_corrected(shown, tmp_path):
    explorer = Explorer(TrainedModel(saved("ConceptBottleneck", tiny_birds(), tmp_path / "x.ckpt")))
    name, page = explorer.test_images[0], shown(explorer, 1280)
    sample, names = explorer.read(sample_id=name), [explorer.explained.unit_name(unit) for unit in explorer.concepts]
    choose(page, "Or a test image", name)
    choose(page, "Concepts that are there", names[3])
    expect(page, explorer, explorer.decide(sample, Changes(concepts={3: True})), 1280)
    choose(page, "Concepts that are not there", names[5])
    expect(page, explorer, explorer.decide(sample, Changes(concepts={3: True, 5: False})), 1280)
    choose(page, "Concepts that are not there", names[3])
    page.get_by_text(f"{names[3]} is in both lists").wait_for()
    page.get_by_role("button", name="as annotated").click()
    expect(page, explorer, explorer.decide(sample, Changes(concepts=explorer.annotated(sample))), 1280)


def test_a_photo_is_explained_by_the_quick_start(shown, tmp_path):
    explorer, photo = Explorer(TrainedModel(RUN / LAST)), tmp_path / "my bird.png"
    Image.effect_noise((90, 60), 60).convert("RGB").save(photo)
    page = shown(explorer, 390)
    page.locator("input[type=file]").set_input_files(photo)
    expect(page, explorer, explorer.decide(explorer.read(photo)), 390)
    page.get_by_label("Remove Image").click()
    page.locator("iframe.answer").wait_for(state="detached")
    photo.write_text("text")
    page.locator("input[type=file]").set_input_files(photo)
    page.get_by_text("cannot identify image file").wait_for()
