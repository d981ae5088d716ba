"""The explorer without a browser: what it shows after a change is what the model says in Python after the same one."""

import pytest
import torch
from torch.nn.functional import linear

from protometry.callbacks.phases.head import head_data
from protometry.callbacks.phases.pruning import remove
from protometry.evaluation.__main__ import main as export
from protometry.evaluation.app import __main__ as command
from protometry.evaluation.app.explorer import Changes, Explorer, open_explorer
from protometry.evaluation.app.places import Places, unit_map
from protometry.evaluation.edit import edited_phases
from protometry.evaluation.pages.corrections import corrections
from protometry.evaluation.trained_model import TrainedModel
from protometry.lightning_modules.phases import HeadSpec
from tests.callbacks.phases.solved import LAST, solved
from tests.lightning_modules.registry import tiny_birds
from tests.untrained import saved, stored


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The file of an untrained model, made once."""
    made = {}

    def of(name):
        if name not in made:
            made[name] = saved(name, tiny_birds(), tmp_path_factory.mktemp("app") / "x.ckpt")
        return made[name]

    return of


@pytest.fixture(scope="module")
def exported(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "model"
    export([str(checkpoint("ProtoPNet")), "--out", str(folder)])
    return str(folder)


def opened(checkpoint, name):
    explorer = Explorer(TrainedModel(checkpoint(name)))
    return explorer, explorer.read(sample_id=explorer.test_images[0]), TrainedModel(checkpoint(name)).model()


@pytest.mark.parametrize("name", ["ProtoPNet", "PIPNet", "ProtoTree", "QPM ternary", "PosthocCBM hybrid"])
@torch.no_grad()
def test_units_that_are_off_are_those_that_edit_removes(name, checkpoint):
    """Where it can remove them; elsewhere their scores are 0, and what bypasses the units stays."""
    explorer, sample, model = opened(checkpoint, name)
    off = {row.line.unit for row in explorer.decide(sample).image.tables[0][1]}
    output, gone = model(sample["image"][None]), torch.zeros_like(model.units().active)
    gone[list(off)] = True
    expected = model.head(output.scores.masked_fill(gone, 0)) + output.extras.get("residual", 0)
    if explorer.removable:
        remove(model, gone)
        expected = model(sample["image"][None]).logits
    decision = explorer.decide(sample, Changes(frozenset(off)))
    assert torch.equal(decision.image.output.logits, expected)
    assert torch.equal(decision.now, model.probabilities(expected)[0])
    assert torch.equal(decision.before, model.probabilities(output.logits)[0])
    assert not torch.equal(decision.now, decision.before)
    assert decision.answer.probability == pytest.approx(float(decision.now.max()))
    assert not off & {row.line.unit for row in decision.image.tables[0][1] if row.line.score}


@pytest.mark.parametrize("name", ["ConceptBottleneck", "CEM"])
def test_concepts_are_corrected_as_on_the_page_of_an_image(name, checkpoint):
    explorer, sample, _ = opened(checkpoint, name)
    plain = explorer.decide(sample)
    *_, every = corrections(explorer.explained, plain.image, sample)
    truth = explorer.annotated(sample)
    assert [*truth] == explorer.concepts
    assert explorer.units == []
    decision = explorer.decide(sample, Changes(concepts=truth))
    assert (decision.answer.explained, float(decision.image.output.logits.max())) == (every.predicted, every.logit)
    assert not torch.equal(decision.now, plain.now)


def run(folder, **head):
    """The run of a model whose last layer was solved, for several penalties unless one is given."""
    model, _ = solved(folder, {**LAST, "last": {**LAST["last"], "head": head}})
    torch.save(stored(model, tiny_birds()), folder / "x.ckpt")
    return Explorer(TrainedModel(folder / "x.ckpt"))


@torch.no_grad()
def test_each_last_layer_of_the_path_reads_the_units_it_has_weights_for(tmp_path):
    explorer = run(tmp_path)
    sample, model, path = explorer.read(sample_id=explorer.test_images[1]), explorer.model, explorer.path
    scores = model.pool(model.prototypes.maps(model.embed(sample["image"][None])))
    seen = [explorer.decide(sample, Changes(step=step)) for step in range(len(path.penalties))]
    for decision, weight in zip(seen, path.weights, strict=True):
        assert torch.allclose(decision.image.output.logits, linear(scores, weight), atol=1e-5)
    assert torch.equal(seen[path.chosen].now, explorer.decide(sample).now)
    assert torch.equal(seen[path.chosen].now, seen[path.chosen].before)
    used = [(weight != 0).any(dim=0) for weight in path.weights]
    assert (used[-1] & ~used[path.chosen]).any(), "no unit that the model itself leaves out is shown"
    assert explorer.active == torch.stack(used).any(dim=0).nonzero().flatten().tolist()


def test_the_last_layer_is_fitted_as_edit_does(tmp_path):
    explorer = run(tmp_path, penalty=1e-3)
    sample, off = explorer.read(sample_id=explorer.test_images[0]), explorer.units[:2]
    assert explorer.fits
    assert explorer.path is None
    model = TrainedModel(tmp_path / "x.ckpt").model()
    (phase,) = filter(None, edited_phases(model, off).values())
    gone = torch.zeros_like(model.units().active)
    gone[off] = True
    remove(model, gone)
    model.fit_head(*head_data(model, explorer.data), HeadSpec(**phase["head"]))
    with torch.no_grad():
        expected = model(sample["image"][None]).logits
    decision = explorer.decide(sample, Changes(frozenset(off), fit=True))
    assert torch.equal(decision.image.output.logits, expected)
    with pytest.raises(ValueError, match="some active units to be left"):
        explorer.decide(sample, Changes(frozenset(explorer.units), fit=True))


def test_a_region_of_a_training_image_is_found_where_it_is(checkpoint):
    explorer, _, _ = opened(checkpoint, "ProtoPNet")
    sample = explorer.data.shown("projection")[5]
    first, second, *_ = Places(explorer).nearest(sample, (8, 0, 23, 15))  # two by two cells of 8 pixels
    assert first[0] == pytest.approx(1, abs=1e-4)  # pictures have 8 bits
    assert second[0] < first[0]
    assert (first[1].box, *first[2:]) == (
        (8, 0, 23, 15), sample["sample_id"], explorer.explained.class_names[sample["label"]],
    )  # fmt: skip


def test_an_exported_model_needs_no_data(exported, checkpoint):
    explorer, (whole, sample, _) = open_explorer(exported), opened(checkpoint, "ProtoPNet")
    photo = explorer.read(whole.decide(sample).image.whole)
    off = frozenset(explorer.units[:3])
    assert explorer.test_images == []
    assert not explorer.removable
    assert not explorer.fits
    expected = whole.decide(whole.read(whole.decide(sample).image.whole), Changes(off))
    assert torch.equal(explorer.decide(photo, Changes(off)).now, expected.now)
    stored_source = explorer.sources.of([explorer.active[0]])[explorer.active[0]]
    first, *_ = Places(explorer).nearest(explorer.read(stored_source.view.picture), (0, 0, 31, 31))
    assert (first[2], first[0]) == (stored_source.sample_id, pytest.approx(1))


def test_the_map_lies_along_the_largest_variance(checkpoint):
    """Vectors that differ in their first channel alone lie on a line, in their order or the reverse of it."""
    explorer, _, _ = opened(checkpoint, "ProtoPNet")
    vectors = torch.zeros_like(explorer.table.vectors)
    vectors[:, 0] = torch.arange(len(vectors)).float()
    object.__setattr__(explorer.table, "vectors", vectors)
    drawn = unit_map(explorer)
    across = drawn.points[:, 0] * (1 if drawn.points[0, 0] < drawn.points[-1, 0] else -1)
    assert torch.allclose(across.diff(), across.diff().mean())
    assert [drawn.at(*point) for point in drawn.points.tolist()] == drawn.units


def test_what_cannot_explain_is_refused_in_a_line(exported, tmp_path, monkeypatch):
    (tmp_path / "model.pt2").touch()
    for model in (tmp_path, tmp_path / "model.pt2"):
        with pytest.raises(ValueError, match=r"model\.pt2 is a program that predicts and does not explain"):
            command.path_of(str(model))
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'Gradio to be installed: `pip install "protometry\[app\]"`'):
        command.main([exported])
