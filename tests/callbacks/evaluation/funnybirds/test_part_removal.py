"""The FunnyBirds protocol: planted birds whose scores are known, a slow loop by the definition, and exactness."""

import math
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from torch import nn

from protometry.callbacks import Interpretability
from protometry.callbacks.evaluation.clean_view import Clean, Setting
from protometry.callbacks.evaluation.funnybirds.birds import find_birds
from protometry.callbacks.evaluation.funnybirds.protocol import FunnyBirdsProtocol
from protometry.callbacks.forward.observer import Observer
from protometry.datamodules import FunnyBirds
from protometry.datamodules.bird_parts import LABEL_MAP_CODES, PART_NAMES, InterventionDataset
from protometry.datamodules.sample import Capabilities, ClassTables
from protometry.explanations import BoxMaps, Explainer, Random, SummedMaps, Targets, Upsample
from protometry.lightning_modules import ProtoPNet
from protometry.lightning_modules.bases.geometry import Geometry
from protometry.lightning_modules.contract import ModelOutput, UnitTable
from protometry.metrics.facts import Facts
from protometry.metrics.functional import part_thresholds, target_pairs
from tests.engine_runs import run_engine
from tests.exports import export
from tests.lightning_modules.registry import tiny_birds

STRENGTH = torch.tensor([1.0, 2, 3, 4, 5])  # of the parts, in the logit of a planted model
TABLE = torch.tensor(
    [[0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [1, 1, 0, 0, 1], [1, 0, 1, 0, 0], [2, 1, 1, 1, 0], [0, 1, 1, 2, 2]]
)
SIZE = 20


class Planted(InterventionDataset):
    """Images of 20 x 20 pixels: part j is a square whose brightness is its variant; objects are at the right."""

    parts = dict.fromkeys(PART_NAMES, ("0", "1", "2"))
    classes = [dict(zip(PART_NAMES, row, strict=True)) for row in TABLE.tolist()]  # noqa: RUF012

    def __init__(self, images=30):
        self.sample_ids = [f"test/{i}" for i in range(images)]

    def __len__(self):
        return len(self.sample_ids)

    def n_background(self, i):
        return i % 3

    def present(self, i):
        return frozenset(PART_NAMES) - ({"eye"} if i == 5 else set())

    def intervene(self, i, drop=(), drop_background=()):
        image = torch.zeros(SIZE, SIZE, 3, dtype=torch.uint8)
        for j, name in enumerate(PART_NAMES):
            if name in self.present(i) and name not in drop:
                image[4 * j : 4 * j + 3, :3] = 40 * (TABLE[i % 6, j] + 1)
        for j in {*range(self.n_background(i))} - {*drop_background}:
            image[4 * j : 4 * j + 3, 10:13] = 200
        return image.numpy()

    def label_map(self, i):
        codes = torch.zeros(SIZE, SIZE, dtype=torch.uint8)
        shown = torch.as_tensor(self.intervene(i))[:, :, 0] > 0
        for j, name in enumerate(PART_NAMES):
            codes[4 * j : 4 * j + 3, :3] = LABEL_MAP_CODES[name][0]
            codes[4 * j : 4 * j + 3, 10:13] = 32 + j
        return codes * shown

    def batches(self, size):
        for first in range(0, len(self), size):
            rows = range(first, min(first + size, len(self)))
            pixels = torch.stack([torch.as_tensor(self.intervene(i)) for i in rows])
            yield {
                "image": pixels.movedim(-1, 1).float().div(255),
                "label": torch.tensor([i % 6 for i in rows]),
                "label_map": torch.stack([self.label_map(i) for i in rows]),
                "sample_id": [self.sample_ids[i] for i in rows],
                "sample_key": torch.tensor(list(rows)),
            }


class PlantedData:
    image_size, loading = (SIZE, SIZE), SimpleNamespace(split="test", classes=None)
    tables = ClassTables(label_map_codes=LABEL_MAP_CODES)

    def __init__(self, size=7, birds=None, **missing):
        self.birds, self.size, self.missing = birds or Planted(), size, missing

    def capabilities(self, split):
        return Capabilities(**({"interventions": True, "label_map": True} | self.missing))

    def dataset(self, split):
        return self.birds

    def configure_loaders(self, **changes):
        pass


def matches(images):
    """``(B, K, 5)``, which parts have the variant of a class."""
    bright = images[:, 0, :, 1].reshape(-1, 5, 4)[:, :, 1]
    return ((bright * 255 / 40).round().long() - 1)[:, None] == TABLE


class PartReader(nn.Module):
    """The logit of a class is the sum of the strengths of its parts; background counts for nothing."""

    geometry = Geometry((SIZE, SIZE), (1, 1), SIZE, SIZE, SIZE / 2)

    device = torch.device("cpu")

    def log(self, *args, **kwargs):
        pass

    def forward(self, images):
        logits = matches(images).float() @ STRENGTH
        return ModelOutput(logits, logits, logits[:, :, None, None])

    def probabilities(self, logits):
        return logits.softmax(dim=1)

    def units(self):
        return UnitTable("class", torch.ones(6, dtype=torch.bool), torch.eye(6, dtype=torch.bool), "max", torch.eye(6))

    def parameter_groups(self):
        return {}


class Ideal(Explainer):
    """Every part is marked with what it adds to the logit."""

    key, explains = "ideal", frozenset({"class"})

    def _maps(self, model, asked):
        adds = matches(asked.images)[torch.arange(len(asked.ids)), asked.ids] * STRENGTH / 9
        maps = torch.zeros(len(adds), 5, 4, SIZE)
        maps[:, :, :3, :3] = adds[:, :, None, None]
        return maps.flatten(1, 2)


def run(data, model=None, interface="attribution", explainer=None, suite=("funnybirds",)):
    engine, model = Interpretability([*suite], interface=interface, explainer=explainer), model or PartReader()
    trainer = SimpleNamespace(datamodule=data, loggers=[], current_epoch=0)
    engine.setup(trainer, model, "test")
    with torch.inference_mode():
        engine.on_test_start(trainer, model.eval())
        for index, batch in enumerate(data.birds.batches(data.size)):
            engine.on_test_batch_end(trainer, model, None, batch, index)
        engine.on_test_epoch_end(trainer, model)
    return engine.evaluation


def found(evaluation):
    return {key.removeprefix("funnybirds/"): entry["value"] for key, entry in evaluation.metrics.items()}


def test_an_ideal_explanation_of_a_part_reader():
    evaluation = run(PlantedData(), explainer=Ideal())
    values = found(evaluation)
    # without parts all logits are 0: the class is 0, the class of every sixth image
    perfect = {name for name, value in values.items() if value == 1}
    assert perfect == {
        *("accuracy", "bi", "csdc", "pc", "d", "sd", "ts", "correctness", "contrastivity"),
        "completeness_heldout",  # images with an odd key are of odd classes
    }
    assert values["dc"] == pytest.approx(5 / 6)
    assert values["completeness"] == pytest.approx(((2 + 5 / 6) / 3 + 1) / 2)
    assert values["overall"] == pytest.approx((values["completeness"] + 2) / 3)
    # all parts at the first threshold; one image lacks one of them
    assert values["important_parts"] == pytest.approx(149 / 30)
    assert evaluation.metrics["funnybirds/completeness"]["threshold"] == pytest.approx(0.01)
    assert (values["hidden_parts"], values["totals_not_positive"]) == (0, 0)
    assert evaluation.images[1]["funnybirds/dc"] == 1
    assert {"funnybirds/completeness", "funnybirds/bi"}.isdisjoint(evaluation.images[1])
    protocol = evaluation.protocol
    assert (protocol["interface"], protocol["explained_by"], protocol["dilation"]) == ("attribution", "ideal()", 1)
    bi = evaluation.metrics["funnybirds/bi"]
    assert (bi["n"], bi["skipped"], bi["averaged_over"]) == (20, 10, "image")  # with objects, and without
    assert evaluation.metrics["funnybirds/correctness"] == evaluation.metrics["funnybirds/sd"]
    assert evaluation.metrics["funnybirds/important_parts"]["higher_is_better"] is False


class ConceptReader(PartReader):
    """A concept of each part, whose score is the variant, and the strength of all other parts mixed into it."""

    def __init__(self, mixed):
        super().__init__()
        self.mixing = torch.eye(5) + mixed * (1 - torch.eye(5))

    def forward(self, images):
        bright = images[:, 0, :, 1].reshape(-1, 5, 4)[:, :, 1]
        scores = (bright > 0).float() @ self.mixing
        return ModelOutput(scores[:, :1].expand(-1, 6), scores, scores[:, :, None, None])

    def units(self):
        owner = torch.ones(5, 6, dtype=torch.bool)
        return UnitTable("concept", owner[:, 0], owner, "max", torch.ones(6, 5), concepts=torch.arange(5))


@pytest.mark.parametrize(("mixed", "share"), [(0.0, 1.0), (0.25, 0.5), (1.0, 0.2)])
def test_locality_is_what_was_planted(mixed, share):
    data = PlantedData()
    names = ["leg" if name == "foot" else name for name in PART_NAMES[::-1]]
    data.tables = ClassTables(
        label_map_codes=LABEL_MAP_CODES, part_group_names=names, concept_names=[*PART_NAMES],
        concept_to_part=4 - torch.arange(5),
    )  # fmt: skip
    locality = run(data, ConceptReader(mixed), explainer=Ideal(), suite=["concepts/locality"]).metrics[
        "concepts/locality"
    ]
    assert locality["value"] == pytest.approx(share)
    assert locality["other_concepts"] == pytest.approx((1 - share) / 4)
    assert (locality["chance"], locality["n"], locality["skipped"]) == (0.2, 5, 5)  # one image lacks a part


class Everywhere(Ideal):
    """Marks all that may be a part, or a pixel that belongs to nothing, whatever the class."""

    def __init__(self, rows):
        self.rows = rows

    def _maps(self, model, asked):
        maps = torch.zeros(len(asked.images), SIZE, SIZE)
        maps[:, self.rows, : 3 if len(self.rows) > 1 else 1] = 1
        return maps


def test_the_bounds_of_all_parts_and_of_none():
    every, none = (found(run(PlantedData(), explainer=Everywhere(rows))) for rows in ([*range(SIZE)], [19]))
    assert [every[name] for name in ("csdc", "pc", "d")] == [1, 1, 1]  # the model uses all parts, and no object
    assert (every["dc"], every["completeness"]) == (pytest.approx(5 / 6), pytest.approx(((2 + 5 / 6) / 3 + 1) / 2))
    assert (none["csdc"], none["dc"], none["d"], none["important_parts"]) == (0, 0, 1, 0)
    assert (none["pc"], none["completeness"]) == (pytest.approx(1 / 6), pytest.approx((1 / 18 + 1) / 2))


def test_a_hidden_part_is_counted_and_keeps_its_drop():
    class Hidden(Planted):
        def label_map(self, i):
            codes = super().label_map(i)
            return codes.masked_fill(codes == LABEL_MAP_CODES["wing"][0], 0) if i == 8 else codes

    evaluation = run(PlantedData(birds=Hidden()), explainer=Ideal())
    assert found(evaluation)["hidden_parts"] == pytest.approx(1 / 30)
    # of the importance 1 2 3 4 0 and the drops 1 2 3 4 5, whose ranks differ by 1 1 1 1 4: rho = 1 - 6 * 20 / 120
    assert evaluation.images[8]["funnybirds/sd"] == pytest.approx(0.5)


def test_random_maps_score_half():
    metrics = run(PlantedData(30, Planted(240)), explainer=Random("pixel")).metrics
    for key in ("funnybirds/sd", "funnybirds/ts"):
        assert metrics[key]["ci95"][0] < 0.5 < metrics[key]["ci95"][1]
    assert 0.25 < metrics["funnybirds/totals_not_positive"]["value"] < 0.75


def slow_logits(model, data, i, **removed):
    pixels = torch.as_tensor(data.intervene(i, **removed)).movedim(-1, 0)[None].float() / 255
    return model(pixels).logits[0]


def removed_from(model, birds, explainer, batch):
    protocol = FunnyBirdsProtocol("attribution", explainer, birds)
    facts = Facts(len(birds.data.classes), False, model.units(), tables=None, missing=lambda flag: None)
    reads = ("label_parts", "pair_importance", "kept_predictions", "part_drops", "pair_drops")
    setting = Setting(facts, frozenset((protocol.view, name) for name in reads), protocol=protocol)
    (fields,) = protocol.views(Clean(batch, Observer(model, Upsample(), 4, 1, explainer), setting))
    return fields


@pytest.mark.parametrize("interface", ["ssm", "planted"])
def test_fields_by_the_definition(interface):
    if interface == "ssm":
        source, explainer = tiny_birds(batch_size=8), SummedMaps()
        model, birds = ProtoPNet(num_classes=8, image_size=(32, 32)).eval(), find_birds(source, "test")
        batch = next(iter(source.test_dataloader()))
    else:
        model, birds, explainer = PartReader().eval(), find_birds(PlantedData(birds=Planted(8)), "test"), Ideal()
        batch = next(birds.data.batches(8))
    with torch.no_grad():
        fields = removed_from(model, birds, explainer, batch)
        for b, name in enumerate(batch["sample_id"]):
            check_image(fields, b, birds.data.sample_ids.index(name), batch, model, birds, explainer)


def check_image(fields, b, i, batch, model, birds, explainer):
    data, codes = birds.data, dict(zip(PART_NAMES, birds.codes, strict=True))
    without = cache(lambda *gone: slow_logits(model, data, i, drop=gone))
    y, clean, there = int(batch["label"][b]), slow_logits(model, data, i), data.present(i)
    close = {"abs": 1e-5, "rel": 1e-4, "nan_ok": True}
    pairs, shared = target_pairs(torch.tensor([[row[name] for name in PART_NAMES] for row in data.classes]))
    label_map, pixels = batch["label_map"][b], batch["image"][b : b + 1]
    whole = [label_map == code for name in PART_NAMES for code in codes[name]]
    owner = [j for j, name in enumerate(PART_NAMES) for _ in codes[name]]
    objects = [label_map == 32 + j for j in range(data.n_background(i))]

    def importance(c):
        attribution = explainer.attribute(model, pixels, Targets("class", torch.tensor([[c]])))[0, 0].double()
        parts = [
            sum(float(attribution[m].sum()) for m, o in zip(whole, owner, strict=True) if o == j) for j in range(5)
        ]
        return parts + [float(attribution[m].sum()) for m in objects], float(attribution.sum())

    drops = []
    for j, name in enumerate(PART_NAMES):
        drop = float(clean[y] - without(name)[y]) if name in there else 0.0
        assert fields.part_drops[b, j].item() == pytest.approx(drop, **close)
        drops.append(drop if name in there else math.nan)
        pictures = [torch.as_tensor(data.intervene(i, drop=gone)) for gone in ([name] if name in there else [], [])]
        scores = model(torch.stack(pictures).movedim(-1, 1).float() / 255).scores
        expected = (scores[0] - scores[1]).abs().tolist()
        assert fields.score_changes[b, :, j].tolist() == pytest.approx(expected, **close)
    for j in range(data.n_background(i)):
        drops.append(float(clean[y] - slow_logits(model, data, i, drop_background=[j])[y]))
        assert fields.background_drops[b, j].item() == pytest.approx(drops[-1], **close)
    assert fields.background_valid[b].sum() == data.n_background(i)
    for r in range(2):
        c = int(pairs[y, r])
        if c >= 0:
            assert fields.pair_importance[b, r].tolist() == pytest.approx(importance(c)[0][:5], **close)
        for s in range(2 if c >= 0 else 0):
            gone = [name for j, name in enumerate(PART_NAMES) if shared[y, s, j] and name in there]
            assert fields.pair_drops[b, r, s].item() == pytest.approx(float(clean[c] - without(*gone)[c]), **close)
    own, total = importance(y)
    assert fields.label_importance[b].tolist() == pytest.approx(own[:5], **close)
    seen, seen_total = importance(int(clean.argmax()))
    for t, threshold in enumerate(part_thresholds().tolist()):
        assert fields.label_candidates[b, t, : len(own)].tolist() == [value > threshold * total for value in own]
        chosen = {j for j in range(5) if seen[j] > threshold * seen_total}
        assert {j for j in range(5) if fields.predicted_parts[b, t, j]} == chosen
        for kept in (chosen, {*range(5)} - chosen):
            gone = [name for j, name in enumerate(PART_NAMES) if j not in kept and name in there]
            expected = int(without(*gone).argmax())
            assert fields.kept_predictions[b, sum(2**j for j in kept)] == expected
    irrelevant = [drop < 0.05 * abs(float(clean[y])) or drop <= 0 for drop in drops]
    assert fields.irrelevant[b, : len(drops)].tolist() == irrelevant
    assert not fields.irrelevant[b, len(drops) :].any()


def test_an_intervention_that_removes_nothing_changes_nothing():
    model, birds = ProtoPNet(num_classes=8, image_size=(32, 32)).eval(), find_birds(tiny_birds(), "test")
    with torch.no_grad():
        fields = removed_from(model, birds, BoxMaps(), next(iter(tiny_birds(batch_size=6).test_dataloader())))
        shown, scores = fields._show(torch.arange(6), [lambda i=i: birds.without(i, 31) for i in range(6)])
    assert torch.equal(shown, fields.logits)
    assert torch.equal(scores, fields.scores)


@cache
def small():
    torch.manual_seed(0)
    return ProtoPNet(num_classes=8, image_size=(32, 32)).eval()


@pytest.mark.parametrize("interface", ["ssm", "bb"])
def test_the_number_of_forwards(interface):
    live = tiny_birds(test_size=16)
    birds = live.dataset("test")
    objects = sum(birds.n_background(i) for i in range(16))
    seen = []
    hook = small().register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
    run_engine(Interpretability(["funnybirds"], interface=interface), small(), live, batch_size=16)
    hook.remove()
    shown = sum(seen[1:])  # after one black image, which tells shapes; with the images that fill the last chunks
    assert shown <= 26 * 16
    assert shown <= 20 * 16 + objects


@pytest.mark.parametrize(
    ("key", "birds_shown", "explained"),
    # one bird lacks an eye; for three classes of six there is a pair, of two parts and two
    [("sd", 149, 1), ("ts", 30, 2), ("bi", 0, 0), ("totals_not_positive", 0, 1), ("hidden_parts", 0, 0)],
)
def test_one_number_costs_what_it_needs_and_is_the_one_of_the_family(key, birds_shown, explained):
    shown, asked = [], []

    class Counted(Planted):
        def intervene(self, i, drop=(), drop_background=()):
            shown.extend([i] if drop else [])
            return super().intervene(i, drop, drop_background)

    class Asked(Ideal):
        def _maps(self, model, question):
            asked.append(question)
            return super()._maps(model, question)

    alone = run(PlantedData(30, Counted()), explainer=Asked(), suite=[f"funnybirds/{key}"])
    assert (len(shown), len(asked)) == (birds_shown, explained)
    family = run(PlantedData(30), explainer=Ideal()).metrics
    assert repr(alone.metrics) == repr({f"funnybirds/{key}": family[f"funnybirds/{key}"]})


def test_an_explanation_that_is_not_finite_is_refused():
    class Broken(Ideal):
        def _maps(self, model, asked):
            return super()._maps(model, asked) / (asked.sample_ids != 8)[:, None, None]

    with pytest.raises(ValueError, match=r"those by explainer 'ideal' hold NaN or infinity for the samples test/8\."):
        run(PlantedData(), explainer=Broken())


def test_exported_birds_give_the_numbers_of_live_ones(tmp_path):
    export("funnybirds", tiny_birds(), tmp_path / "birds")
    for file in (tmp_path / "birds" / "test_interventions").rglob("*1.png"):
        Image.open(file).convert("RGB").save(file)  # the official files are RGBA
    root = str(tmp_path / "birds")
    live, read = (
        run_engine(Interpretability(["funnybirds"]), small(), data)
        for data in (tiny_birds(), FunnyBirds(root, image_size=32, fold=None, eval_batch_size=4))
    )
    for evaluation in (live, read):  # which images are held out depends on their names
        evaluation.metrics.pop("funnybirds/completeness_heldout")
    assert repr(found(read)) == repr(found(live))
    assert found(live)["completeness"] > 0
    assert [entry["n"] for entry in read.metrics.values()] == [entry["n"] for entry in live.metrics.values()]


def test_classes_without_a_pair_have_no_target_sensitivity():
    class Alone(Planted):  # no class shares a part with another
        classes = [dict.fromkeys(PART_NAMES, label) for label in range(6)]  # noqa: RUF012

    with pytest.warns(UserWarning, match="TargetSensitivity is NaN"):
        evaluation = run(PlantedData(birds=Alone()), explainer=Ideal())
    assert (evaluation.metrics["funnybirds/ts"]["n"], evaluation.metrics["funnybirds/ts"]["skipped"]) == (0, 30)
    assert found(evaluation)["sd"] == 1


def share(rank, world_size, model, interface, explainer):
    engine = Interpretability(["funnybirds"], interface=interface, explainer=explainer)
    return run_engine(engine, model, tiny_birds(), batch_size=3, rank=rank, world_size=world_size)


def test_a_model_without_any_correct_prediction():
    class Wrong(PartReader):
        def forward(self, images):
            logits = -super().forward(images).logits
            return ModelOutput(logits, logits, logits[:, :, None, None])

    with pytest.warns(UserWarning, match="ControlledSyntheticDataCheck is NaN"):
        evaluation = run(PlantedData(), Wrong(), explainer=Ideal())
    # without CSDC there is no threshold, and without a threshold none of the others
    numbers = {name.removeprefix("funnybirds/"): entry for name, entry in evaluation.metrics.items()}
    undefined = {name for name, entry in numbers.items() if math.isnan(entry["value"])}
    of_threshold = {"csdc", "pc", "dc", "d", "important_parts", "completeness", "completeness_heldout", "overall"}
    assert of_threshold <= undefined
    assert {(numbers[name]["n"], numbers[name]["skipped"]) for name in undefined} == {(0, 30)}
    assert evaluation.metrics["funnybirds/accuracy"]["value"] == 0
    assert math.isnan(evaluation.images[1]["funnybirds/pc"])


def test_what_the_data_lack_is_said():
    missing = run(PlantedData(interventions="none rendered"), explainer=Ideal())
    assert list(missing.metrics) == ["funnybirds/accuracy"]
    assert missing.skipped["funnybirds/bi"] == "interventions: none rendered"
    unmapped = run(PlantedData(label_map="no part maps"), explainer=Ideal())
    assert found(unmapped) == {"accuracy": 1, "bi": 1}
    assert set(unmapped.skipped.values()) == {"label_map: no part maps"}
    other = PlantedData()
    other.loading = SimpleNamespace(split="test", classes=["bird"])
    for data, reason in (
        (other, "class_parts: the classes are not composed of parts"),
        (PlantedData(multi_label=True), "single_label: the data are multilabel"),
    ):
        with pytest.raises(ValueError, match=f"none of funnybirds/accuracy, .* does: {reason}. `python evaluate"):
            run(data, explainer=Ideal(), suite=("funnybirds/accuracy", "funnybirds/bi"))


def test_errors():
    for call, text in (
        (lambda: run(PlantedData()), "explainer of classes for the interface 'attribution', but got none"),
        (lambda: run(PlantedData(), explainer=BoxMaps()), "but got boxes, which are the interface bb"),
        (lambda: run(PlantedData(), interface="boxes"), "`interface` to be one of"),
        (lambda: run(PlantedData(), explainer=Upsample()), r"'attribution', but 'upsample' explains \['unit'\]"),
        (lambda: run(PlantedData(), interface="ssm", suite=["general"]), "add `funnybirds` to the suite"),
    ):
        with pytest.raises(ValueError, match=text):
            call()


def test_another_background_is_refused():
    class Foreign(Planted):
        def intervene(self, i, drop=(), drop_background=()):
            image = super().intervene(i, drop, drop_background)
            image[:, 15:] = 90 if drop and i == 3 else 0
            return image

    with pytest.raises(ValueError, match="those of test/3 have another background than their images"):
        run(PlantedData(birds=Foreign()), explainer=Ideal())
