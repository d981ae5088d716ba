"""The FunnyBirds protocol: planted birds whose scores are known, a slow loop by the definition, and exactness."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from callbacks.evaluation.funnybirds import evaluate_funnybirds
from callbacks.evaluation.observer import Observer
from callbacks.evaluation.part_removal import Birds, PartRemoval, Reading, batches_of
from datamodules.bird_parts import LABEL_MAP_CODES, PART_NAMES
from datamodules.sample import Capabilities
from explanations import Explainer, GradCAM, Random, SummedMaps, Targets, Upsample
from lightning_modules import ProtoPNet
from lightning_modules.contract import ModelOutput, UnitTable
from metrics.functional import part_thresholds, target_pairs
from tests.lightning_modules.registry import tiny_birds

STRENGTH = torch.tensor([1.0, 2, 3, 4, 5])  # of the parts, in the logit of a planted model
TABLE = torch.tensor(
    [[0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [1, 1, 0, 0, 1], [1, 0, 1, 0, 0], [2, 1, 1, 1, 0], [0, 1, 1, 2, 2]]
)
SIZE = 20


class Planted:
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
    tables = SimpleNamespace(label_map_codes=LABEL_MAP_CODES)

    def __init__(self, size=7, birds=None, **missing):
        self.birds, self.size, self.missing = birds or Planted(), size, missing

    def capabilities(self, split):
        return Capabilities(**({"interventions": True, "label_map": True} | self.missing))

    def dataset(self, split):
        return self.birds

    def test_dataloader(self):
        return self.birds.batches(self.size)


def matches(images):
    """``(B, K, 5)``, which parts have the variant of a class."""
    bright = images[:, 0, :, 1].reshape(-1, 5, 4)[:, :, 1]
    return ((bright * 255 / 40).round().long() - 1)[:, None] == TABLE


class PartReader(nn.Module):
    """The logit of a class is the sum of the strengths of its parts; background counts for nothing."""

    device = torch.device("cpu")

    def forward(self, images):
        logits = matches(images).float() @ STRENGTH
        return ModelOutput(logits, logits, logits[:, :, None, None])

    def units(self):
        return UnitTable("class", torch.ones(6, dtype=torch.bool), torch.eye(6, dtype=torch.bool), "max", torch.eye(6))


class Ideal(Explainer):
    """Every part is marked with what it adds to the logit."""

    key, explains = "ideal", frozenset({"class"})

    def _maps(self, model, asked):
        adds = matches(asked.images)[torch.arange(len(asked.ids)), asked.ids] * STRENGTH / 9
        maps = torch.zeros(len(adds), 5, 4, SIZE)
        maps[:, :, :3, :3] = adds[:, :, None, None]
        return maps.flatten(1, 2)


def run(data, model=None, interface="attribution", explainer=None):
    return evaluate_funnybirds(model or PartReader(), data, interface, explainer)


def test_an_ideal_explanation_of_a_part_reader():
    evaluation = run(PlantedData(), explainer=Ideal())
    found = {key.removeprefix("funnybirds/"): entry["value"] for key, entry in evaluation.metrics.items()}
    # without parts all logits are 0: the class is 0, which is that of every sixth image
    perfect = {name for name, value in found.items() if value == 1}
    assert perfect == {
        *("accuracy", "bi", "csdc", "pc", "d", "sd", "ts", "correctness", "contrastivity"),
        "completeness_heldout",  # images with an odd key are of odd classes
    }
    assert found["dc"] == pytest.approx(5 / 6)
    assert found["completeness"] == pytest.approx(((2 + 5 / 6) / 3 + 1) / 2)
    assert found["overall"] == pytest.approx((found["completeness"] + 2) / 3)
    beside = evaluation.metrics["funnybirds/completeness"]
    # all parts at the first threshold, of which one image lacks one
    assert (beside["important_parts"], beside["threshold"]) == (pytest.approx(149 / 30), pytest.approx(0.01))
    assert evaluation.images[1]["funnybirds/dc"] == 1
    assert (evaluation.protocol["interface"], evaluation.protocol["explained_by"]) == ("attribution", "ideal()")
    assert evaluation.metrics["funnybirds/bi"]["n"] == 20  # images with objects
    assert evaluation.metrics["funnybirds/correctness"] == evaluation.metrics["funnybirds/sd"]
    # 15 sets of parts at most besides the whole bird, and every object
    assert evaluation.protocol["forwards"] <= 20 * 30 + sum(i % 3 for i in range(30))


def test_random_maps_score_half():
    metrics = run(PlantedData(30, Planted(240)), explainer=Random("pixel")).metrics
    for key in ("funnybirds/sd", "funnybirds/ts"):
        assert metrics[key]["ci95"][0] < 0.5 < metrics[key]["ci95"][1]
    assert run(PlantedData(), explainer=Random("pixel")).protocol["totals_not_positive"] > 5


def slow_logits(model, data, i, **removed):
    pixels = torch.as_tensor(data.intervene(i, **removed)).movedim(-1, 0)[None].float() / 255
    return model(pixels).logits[0]


@pytest.mark.parametrize("interface", ["ssm", "planted"])
def test_fields_by_the_definition(interface):
    if interface == "ssm":
        source, explainer = tiny_birds(batch_size=8), SummedMaps()
        model, data = ProtoPNet(num_classes=8, image_size=(32, 32)).eval(), source.dataset("test")
        loader, codes = source.test_dataloader(), source.tables.label_map_codes
    else:
        model, data, explainer, codes = PartReader().eval(), Planted(8), Ideal(), LABEL_MAP_CODES
        loader = data.batches(8)
    birds = Birds(data, [tuple(codes[name]) for name in PART_NAMES])
    observer, thresholds = Observer(model, explainer, 4, 1), part_thresholds(5)
    with torch.no_grad():
        (batch, rows), *_ = batches_of(birds, loader, torch.device("cpu"))
        fields = PartRemoval(batch, rows, birds, observer, Reading("ssm", thresholds))
        for b, i in enumerate(rows):
            check_image(fields, b, i, batch, model, data, explainer, codes, thresholds)


def check_image(fields, b, i, batch, model, data, explainer, codes, thresholds):
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
        drop = float(clean[y] - slow_logits(model, data, i, drop=[name])[y]) if name in there else 0.0
        assert fields.part_drops[b, j].item() == pytest.approx(drop, **close)
        drops.append(drop if name in there else math.nan)
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
            assert fields.pair_drops[b, r, s].item() == pytest.approx(
                float(clean[c] - slow_logits(model, data, i, drop=gone)[c]), **close
            )
    own, total = importance(y)
    assert fields.label_importance[b].tolist() == pytest.approx(own[:5], **close)
    seen, seen_total = importance(int(clean.argmax()))
    for t, threshold in enumerate(thresholds.tolist()):
        assert fields.label_candidates[b, t, : len(own)].tolist() == [value > threshold * total for value in own]
        chosen = {j for j in range(5) if seen[j] > threshold * seen_total}
        assert {j for j in range(5) if fields.predicted_parts[b, t, j]} == chosen
        for kept in (chosen, {*range(5)} - chosen):
            gone = [name for j, name in enumerate(PART_NAMES) if j not in kept and name in there]
            expected = int(slow_logits(model, data, i, drop=gone).argmax())
            assert fields.kept_predictions[b, sum(2**j for j in kept)] == expected
    irrelevant = [drop < 0.05 * abs(float(clean[y])) or drop <= 0 for drop in drops]
    assert fields.irrelevant[b, : len(drops)].tolist() == irrelevant
    assert not fields.irrelevant[b, len(drops) :].any()


def rounded(evaluation):
    return {key: (round(entry["value"], 12), entry["n"]) for key, entry in evaluation.metrics.items()}


def share(rank, world_size, model, interface, explainer):
    data = tiny_birds(batch_size=3)
    data.trainer = SimpleNamespace(global_rank=rank, world_size=world_size)
    return evaluate_funnybirds(model, data, interface, explainer)


@pytest.mark.parametrize(
    ("interface", "explainer"), [("ssm", None), ("bb_reference", None), ("attribution", GradCAM())]
)
def test_batch_sizes_and_processes_change_nothing(interface, explainer, ddp_pool):
    torch.manual_seed(0)
    model = ProtoPNet(num_classes=8, image_size=(32, 32))
    one, other = (evaluate_funnybirds(model, tiny_birds(batch_size=n), interface, explainer) for n in (8, 3))
    assert model.training
    for found in (other, *ddp_pool.run(share, model, interface, explainer)):
        assert repr(rounded(found)) == repr(rounded(one))
        assert repr(sorted(found.images.items())) == repr(sorted(one.images.items()))
        assert found.protocol == one.protocol


def test_a_model_without_any_correct_prediction():
    class Wrong(PartReader):
        def forward(self, images):
            logits = -super().forward(images).logits
            return ModelOutput(logits, logits, logits[:, :, None, None])

    with pytest.warns(UserWarning, match="ControlledSyntheticDataCheck is NaN"):
        metrics = run(PlantedData(), Wrong(), explainer=Ideal()).metrics
    undefined = {key.split("/")[1] for key, entry in metrics.items() if math.isnan(entry["value"])}
    assert {"csdc", "completeness", "completeness_heldout", "overall"} <= undefined
    assert metrics["funnybirds/accuracy"]["value"] == 0


def test_errors():
    twelve = Planted()
    twelve.classes = twelve.classes * 2
    for call, text in (
        (lambda: run(PlantedData(interventions="none rendered")), "interventions, without .* but none rendered"),
        (lambda: run(PlantedData(label_map="no part maps")), "part maps, without which only .* but no part maps"),
        (lambda: run(PlantedData(multi_label=True)), "one label per image, but the data are multilabel"),
        (lambda: run(PlantedData()), "`explainer` with the interface 'attribution'"),
        (lambda: run(PlantedData(), interface="ssm", explainer=Ideal()), "and with no other"),
        (lambda: run(PlantedData(), interface="boxes"), "`interface` to be one of"),
        (lambda: run(PlantedData(), explainer=Upsample()), r"explainer of classes, but 'upsample' explains \['unit'\]"),
        (lambda: run(PlantedData(birds=twelve), explainer=Ideal()), "the 6 classes of the model, but got 12"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
