"""Whole reports of tiny models: links, escaping, equal bytes, what is refused, and the checks while building."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from PIL import Image

from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.evaluation.explained.scan import Scan, scan
from protometry.evaluation.pages import Limits, build_comparison, build_report
from protometry.evaluation.pages.class_page import class_sheet
from protometry.evaluation.pages.contents import choose_images, choose_units, decided
from protometry.evaluation.pages.contrast import contrast_of
from protometry.evaluation.pages.site import signed
from protometry.evaluation.pages.standalone_page import standalone_page
from protometry.evaluation.pages.tree_page import way
from tests.evaluation.explained.evaluated import comparison_of, entry, evaluation_files, explained_of
from tests.lightning_modules.registry import tiny_birds
from tests.tiny_runs import ROOT

HOSTILE = "<img src=x onerror=\"document.title='hacked'\"></script>'\u202eبط🐦" + "x" * 300
LIMITS = Limits(images=2, units=3, classes=2, errors=3)


@pytest.fixture(scope="module")
def birds():
    return tiny_birds()


def files(**changes):
    figures = {name: Image.new("RGB", (9, 9)) for name in ("spider", "class_features")}
    return evaluation_files(figures, **changes)


class Links(HTMLParser):
    """All targets of links and pictures, and pictures without a description."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.silent, self.scripts = set(), 0, 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        result = dict(attributes)
        self.targets |= {result[name] for name in ("src", "href") if name in result}
        described = {"img": "alt", "svg": "aria-label"}
        self.silent += tag in described and not result.get(described[tag])
        self.scripts += tag == "script" or any(name.startswith("on") for name in result)


def pages_of(folder):
    """The text of all pages by name, once every link and picture is there, listed, described, and no page is lost."""
    pages = {path.name: path.read_text("utf-8") for path in folder.glob("*.html")}
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert there == {*listed, "manifest.json"}
    result = {page: Links(text) for page, text in pages.items()}
    for page, links in result.items():
        missing = {target for target in links.targets if target != "#main"} - there
        assert (page, missing, links.silent, links.scripts) == (page, set(), 0, 0)
    assert any("&lt;img src=x" in text for text in pages.values())
    assert set(pages) <= set().union(*(links.targets for links in result.values())) | {"index.html"}
    return pages


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["ProtoPNet", "ProtoTree", "BagNet", "PosthocCBM hybrid"])
def test_every_kind_of_model_has_a_report_that_holds_together(name, birds, tmp_path):
    explained = explained_of(name, birds, class_names=[HOSTILE, *birds.class_names[1:]])
    folder = build_report(explained, files(), tmp_path / "report", LIMITS).parent
    pages = pages_of(folder)
    assert ("tree.html" in pages) == (name == "ProtoTree")
    assert ("units.html" in pages) == (name != "BagNet")
    assert len([page for page in pages if page.startswith("image-")]) == 2
    assert any("protometry edit RUN --remove" in text for text in pages.values()) == (name == "ProtoPNet")
    assert "Showing 2 of 8 images" in pages["images.html"]
    assert "<code>protometry audit RUN</code>" in pages["index.html"]
    assert "<code>protometry audit RUN</code>" in pages["audit.html"]
    assert re.findall("<h2>(.*)</h2>", pages["funnybirds.html"] + pages["figures.html"]) == ["Spider", "Class features"]
    if name != "ProtoPNet":
        return
    before = content(folder)
    build_report(explained_of(name, birds, class_names=[HOSTILE, *birds.class_names[1:]]), files(), folder, LIMITS)
    assert content(folder) == before


def test_a_wrong_image_is_explained_against_its_right_class(birds):
    explained = explained_of("ProtoPNet", birds)
    for image in explained.explain([birds.dataset("test")[index] for index in range(8)]):
        (table, rows), contrast = image.contrast, contrast_of(image, explained)
        assert (contrast["rival"] == image.truth[0]) == (image.correct is False)
        *bars, total = contrast["bars"]
        assert [bar.row for bar in bars] == [*rows, None]
        assert sum(float(bar.value) for bar in bars) == pytest.approx(table.margin.rival, abs=0.05)
        assert total.value == signed(table.margin.rival)


def test_the_class_that_an_abstaining_model_nearly_gave_may_be_right(birds):
    explained = explained_of("ProtoPNet", birds)
    images = explained.explain([birds.dataset("test")[index] for index in range(8)])
    right = next(image for image in images if image.correct)
    assert ", and the next class, " in standalone_page(replace(right, correct=False, abstains=True), explained)


def test_two_models_side_by_side(birds, tmp_path):
    names = ["ProtoPNet", "BagNet"]  # one takes every image for bird 2, the other for bird 4
    compared = comparison_of(names, tmp_path, (6, 5, 4, 3, 2, 1), "a/b", HOSTILE)
    collected = []
    for _ in range(2):
        evaluated = [(explained_of(name, birds), files()) for name in names]
        folder = build_comparison(evaluated, compared, tmp_path / "pages", Limits(images=3)).parent
        collected.append(content(folder))
    assert collected[0] == collected[1]
    pages = pages_of(folder)
    assert re.findall(r"<h2>(.*)</h2>|>(test/\d+)<", pages["images.html"])[:4] == [
        *[("Only A is right", ""), ("", "test/00002"), ("Only B is right", ""), ("", "test/00004")]
    ]
    assert "Showing 3 of 6 images" in pages["images.html"]
    assert "<h2>A: ProtoPNet, training not recorded (run0)</h2>" in pages["index.html"]
    assert "<dd>evaluation, last.ckpt at step 3</dd>" in pages["index.html"]
    assert "<strong>+0.50</strong>" in pages["differences.html"]
    assert re.search(r"Both are wrong, each in its own way</th><td class=\"n\">4</td>", pages["index.html"])


def test_several_labels_per_image_are_right_only_together(tmp_path):
    data = tiny_birds(task="attributes")
    names, ids = [HOSTILE, *data.class_names[1:]], data.dataset("test").sample_ids
    model = explained_of("ProtoPNet", data, task="multilabel").model
    logits = scan(model, data, "test").logits
    model.decision_threshold.fill_(logits.median())
    above = logits > model.decision_threshold
    explained, outputs = ExplainedModel(model, data, size=48, class_names=names), scan(model, data, "test")
    assert outputs.predictions == [tuple(row.nonzero().flatten().tolist()) for row in above]
    assert not any(outputs.correct)
    assert all(replace(outputs, labels=outputs.predictions).correct)
    image = explained.explain([data.dataset("test")[0]])[0]
    assert (image.predictions, image.label, image.correct) == (outputs.predictions[0], outputs.predicted[0], False)
    assert image.mistakes == explained.mistakes(outputs.predictions[0], outputs.labels[0])
    assert explained.mistakes([1, 2, 3], [2, 4]) == (("missing", names[4]), ("surplus", f"{names[1]}, {names[3]}"))
    assert {flag for _, rows in image.tables for row in rows for flag in row.flags} & {
        "of another label", "of another class"} == {"of another label"}  # fmt: skip
    with pytest.raises(ValueError, match="gets 3 of 8 images right, but this one gets 0 of 8"):
        build_report(explained, files(metrics={"general/accuracy": entry(3 / 8) | {"n": 8}}), tmp_path / "other")
    measured = files(metrics={"general/accuracy": entry(0.0) | {"n": 8}})
    pages = pages_of(build_report(explained, measured, tmp_path / "report", LIMITS).parent)
    assert "8 of 8 images are wrong" in pages["errors.html"]
    assert re.search(r"missing in images.*<td class=\"n\">\d", pages["errors.html"], re.DOTALL)
    assert "images get exactly their labels" in pages["index.html"]
    assert "taken for" not in "".join(pages.values())
    assert f"the label with the largest logit, {names[image.label]}" in standalone_page(image, explained)
    sides = [(explained, measured), (explained_of("BagNet", data, task="multilabel"), measured)]
    compared = replace(comparison_of(["ProtoPNet", "BagNet"], tmp_path, range(8), "a/b", HOSTILE), shared=ids)
    first = build_comparison(sides, compared, tmp_path / "pages", Limits(images=3)).read_text("utf-8")
    assert re.search(r"Both are wrong, each in its own way</th><td class=\"n\">8</td>", first)


def test_who_abstains_is_ahead_by_nothing(tmp_path):
    data = tiny_birds()
    explained = explained_of("PIPNet", data)
    explained.model.score_threshold.fill_(2.0)  # above every score
    folder = build_report(explained, files(), tmp_path / "report", LIMITS).parent
    errors = (folder / "errors.html").read_text("utf-8")
    assert errors.count('<div class="grey">nothing <span') == 3
    assert "ahead by" not in errors


@pytest.mark.parametrize(("name", "text"), [
    ("notes.txt", "mine"), ("manifest.json", "[]"), ("manifest.json", '{"files": {"../notes.html": {}}}'),
])  # fmt: skip
def test_a_foreign_folder_is_left_alone(birds, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(FileExistsError, match="to be free or to hold an earlier report"):
        build_report(explained_of("BagNet", birds), files(), tmp_path, LIMITS)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_two_reports_do_not_share_a_folder(birds, tmp_path):
    code = "import sys\nfrom pathlib import Path\nfrom protometry.run_folder.lock import only_process\n"
    code += "with only_process(Path(sys.argv[1])): print(flush=True), sys.stdin.read()"
    call = [sys.executable, "-c", code, str(tmp_path / "report")]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as other:
        other.stdout.readline()
        with pytest.raises(ValueError, match=r"Expected no other process in .*report, but process"):
            build_report(explained_of("BagNet", birds), files(), tmp_path / "report", LIMITS)
        other.stdin.close()
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("name", ["images", "units", "classes", "errors"])
def test_limits_are_not_negative(name):
    with pytest.raises(ValueError, match=f"`{name}` to be at least 0, but got -1"):
        Limits(**{name: -1})


def test_a_corrupted_weight_stops_the_build_and_names_the_place(birds, tmp_path, monkeypatch):
    explained = explained_of("ProtoPNet", birds)
    table = explained.model.units()
    weight = table.weight.detach().clone()
    weight[:, 1] += 0.5
    monkeypatch.setattr(explained.model, "units", lambda: replace(table, weight=weight))
    with pytest.raises(ValueError, match=r"on the image page, for image test/\d+ and class bird \d, to"):
        build_report(explained, files(), tmp_path / "report", LIMITS)
    assert not (tmp_path / "report" / "manifest.json").exists()
    for name in ("report/mynotes.html", "outside.html"):
        (tmp_path / name).write_text("mine")
    with (tmp_path / "report" / "unfinished").open("a") as file:
        file.write("../outside.html\n")  # no file of a report, whatever the list says
    build_report(explained_of("BagNet", birds), files(), tmp_path / "report", LIMITS)
    assert (tmp_path / "outside.html").exists()
    (tmp_path / "report" / "mynotes.html").rename(tmp_path / "mynotes.html")  # it was left alone
    pages_of(
        build_report(explained_of("BagNet", birds, class_names=[HOSTILE] * 8), files(), tmp_path / "report").parent
    )
    weight[0, 1] += 0.5  # the same for all classes would change nothing above their mean
    explained.units = replace(table, weight=weight)
    with pytest.raises(ValueError, match="page of class bird 0 to sum to its mean logit"):
        class_sheet(explained, scan(explained.model, birds, "test"), 0)


def test_a_wrong_leaf_is_found(birds):
    explained = explained_of("ProtoTree", birds)
    (image,) = explained.explain([birds.dataset("test")[0]])
    steps, leaf, reach = way(explained, image)
    assert len(steps) == 5
    assert 0 < reach < 1
    assert leaf.classes[0][1] == pytest.approx(torch.tensor([4.0, *[0.0] * 7]).softmax(dim=0)[0].item())
    explained.model.tree.leaf_logits += torch.arange(8.0)
    with pytest.raises(ValueError, match="Expected the leaves on the page of image test/00000"):
        way(explained, image)


def test_wrong_images_come_first_and_classes_in_turn():
    logits = torch.eye(3, dtype=torch.float64)[[0, 0, 1, 1, 2, 0, 0]]
    labels = [(0,), (0,), (1,), (2,), (2,), (1,), (0,)]
    outputs = Scan([str(i) for i in range(7)], labels, logits, logits)
    assert [outputs.labels[row] for row in choose_images(outputs, 4)] == [(1,), (2,), (0,), (1,)]
    assert len(choose_images(outputs, 100)) == 7
    silent = replace(outputs, logits=torch.zeros(7, 3))
    assert not any(silent.correct)  # without a decision nothing is right


def test_units_are_shown_by_what_they_decide(birds):
    explained = explained_of("ProtoPNet", birds)
    scores, logits = torch.zeros(2, 16, dtype=torch.float64), torch.zeros(2, 8, dtype=torch.float64)
    scores[0, :3], logits[:, 0] = torch.tensor([2.0, 4.0, 8.0]), 1  # both images are taken for the first class
    # weights of 1 for the two prototypes of a class and -1/2 for others, mean -5/16: 21/16 and -3/16 above it
    result = decided(explained, Scan(["a", "b"], [(0,), (0,)], logits, scores))
    assert (result[:4].tolist(), choose_units(result, 16)) == ([21 / 16, 42 / 16, 12 / 16, 0], [1, 0, 2])
    assert choose_units(result, 2) == [1, 0]


def test_scan_leaves_the_loaders_as_they_were(birds):
    before = birds.loading
    outputs = scan(explained_of("BagNet", birds).model, birds, "projection", 10)
    assert (len(outputs.sample_ids), birds.loading) == (10, before)
