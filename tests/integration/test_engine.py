"""The engine end to end: no change without a perturbation, and nothing but the images decides the numbers."""

import math

import pytest
import torch

from protometry.callbacks import Interpretability
from protometry.explanations import Upsample
from protometry.metrics.suite import FAMILIES, resolve
from tests.engine_runs import run_engine, values
from tests.explanations.registry import EXPLAINERS
from tests.lightning_modules.registry import MODELS, tiny_birds

EIGHT = 2**-7  # GiB for eight images per forward
CHANGES = [key for family in ("completeness", "continuity") for key in FAMILIES[family].keys]


def built(name, image_size=(32, 32), **options):
    torch.manual_seed(0)
    model = MODELS[name](num_classes=8, image_size=image_size, **options)
    for module in model.modules():  # statistics as after training, so that maps differ
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.2, 0.2)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model.eval()


PLAIN = [name for name in EXPLAINERS if " " not in name]  # their options: tests/slow


# -- zero perturbation, zero change -----------------------------------------------------------------------------------
def assert_nothing_changes_without_a_perturbation(name, explainer):
    """In batches of 3, so that a clean image and its perturbed views have other neighbours."""
    # the largest cell, resized as it is, covers more than 5 % of the image: nothing is above the percentile
    undefined = explainer == "GradCAM signed"
    model, explainer = built(name), EXPLAINERS[explainer]()
    if explainer.supports(model) is not None:
        pytest.skip(explainer.supports(model))
    engine = Interpretability(CHANGES, explainer=explainer, noise=0.0, view="identity")
    evaluation = run_engine(engine, model, tiny_birds(test_size=4), batch_size=3)
    for key in CHANGES:
        if key in evaluation.skipped:
            assert "explains classes only" in evaluation.skipped[key]
            assert key.startswith("completeness/")
        elif undefined and key.startswith("completeness/"):
            assert evaluation.metrics[key]["n"] == 0, key
        else:
            assert evaluation.metrics[key]["value"] == 0.0, key
            assert evaluation.metrics[key]["n"] > 0, key


@pytest.mark.parametrize("explainer", PLAIN)
def test_without_a_perturbation_nothing_changes(explainer):
    assert_nothing_changes_without_a_perturbation("ProtoPNet", explainer)


SOME = ("ProtoPNet", "ProtoTree", "PIPNet", "BagNet", "CEM", "QPM", "ProtoViT", "PosthocCBM")  # others: tests/slow


@pytest.mark.parametrize("name", SOME)
def test_the_perturbation_changes_something_and_what_is_shown_of_a_decision_is_measured(name):
    assert_measured(name)


def assert_measured(name):
    keys, model = ["compactness/decision_share", "compactness/distinct_regions"], built(name)
    evaluation = run_engine(Interpretability([*CHANGES, *keys]), model, tiny_birds(test_size=9))
    for key in ("completeness/vac", "completeness/psc", "continuity/psc", "continuity/pac", "continuity/cac"):
        assert evaluation.metrics[key]["value"] > 0, key
    share, regions = (evaluation.metrics[key] for key in keys)
    assert 0 < share["value"] <= 1
    assert 1 <= regions["value"] <= 5
    assert share["n"] == regions["n"] == 9
    assert all(row.keys() >= set(keys) for row in evaluation.images.values())
    if name not in ("ProtoTree", "BagNet"):  # as many units as there are, not leaves or cells: all of the decision
        whole = run_engine(Interpretability(keys[:1], top_k=len(model.units().active)), model, tiny_birds(test_size=9))
        assert whole.metrics[keys[0]]["value"] == pytest.approx(1)


# -- invariance -------------------------------------------------------------------------------------------------------


def evaluated(suite=("all",), **options):
    engine = Interpretability(list(suite), memory_budget=EIGHT)
    return run_engine(engine, built("ProtoPNet"), tiny_birds(test_size=10), **options)


def control(evaluation, key):
    return {name: value for name, value in evaluation.metrics[key].items() if "random_peak" in name}


def assert_equal(evaluation, reference):
    assert evaluation.skipped == reference.skipped
    other, expected = values(evaluation), values(reference)
    assert other.keys() == expected.keys()
    for key, figures in expected.items():
        assert other[key] == pytest.approx(figures, abs=1e-6, nan_ok=True), key
        assert control(evaluation, key) == pytest.approx(control(reference, key), abs=1e-6, nan_ok=True), key
    assert evaluation.images.keys() == reference.images.keys()
    for name, row in reference.images.items():
        assert evaluation.images[name] == pytest.approx(row, abs=1e-6, nan_ok=True)
        one, other = evaluation.predictions[name], reference.predictions[name]
        assert (one.label, one.classes) == (other.label, other.classes)
        assert one.probabilities == pytest.approx(other.probabilities)


@pytest.fixture(scope="module")
def reference():
    return evaluated(batch_size=10)


FEW_IMAGES = ("alignment/consistency", "alignment/parts_covered")  # of one class, fewer than five
# undefined if fewer than two classes are ever right, or no image of one half
ONE_CLASS = ("concepts/cgim2_concept", "concepts/cgim3_concept", "funnybirds/completeness_heldout")


def test_every_number_is_a_number(reference):
    leaks = ("oracle_impurity", "niche_impurity", "task_leakage", "interconcept_leakage")
    names = ("accuracy", "auc", "ece", *leaks, "residual_share", "locality", "completeness")
    predictions = {f"concepts/{name}" for name in names}
    unplanted = {"sanity/shortcut_success", "sanity/shortcut_units"}
    assert reference.skipped.keys() == {"general/abstention", *predictions, *unplanted, *FAMILIES["intervention"].keys}
    assert reference.metrics.keys() | reference.skipped.keys() == {*resolve(["all"])}
    for key, entry in reference.metrics.items():
        assert math.isfinite(entry["value"]) or key in (*ONE_CLASS, *FEW_IMAGES), key


# -- bad input --------------------------------------------------------------------------------------------------------
def test_a_batch_of_one_and_a_split_of_one_class():
    data = tiny_birds(test_size=1)
    evaluation = run_engine(Interpretability(["all"], memory_budget=EIGHT), built("ProtoPNet"), data, 1)
    undefined = {key for key, entry in evaluation.metrics.items() if not math.isfinite(entry["value"])}
    others = {"contrastivity/afd_inter", "contrastivity/apd_inter", "alignment/stability_nonempty"}
    others |= {*FEW_IMAGES, "alignment/purity"}
    assert undefined - {*FAMILIES["concepts"].keys, *FAMILIES["funnybirds"].keys} <= others
    assert evaluation.metrics["general/accuracy"]["n"] == 1


def test_constant_maps_are_undefined_not_perfect():
    model = built("Classifier")
    torch.nn.init.zeros_(model.backbone.net[-1][1].weight)  # the last BatchNorm: every channel becomes constant
    torch.nn.init.ones_(model.backbone.net[-1][1].bias)
    engine = Interpretability(["completeness", "complexity"], explainer=Upsample())
    evaluation = run_engine(engine, model, tiny_birds(test_size=4))
    for key in ("completeness/vlc", "completeness/vac", "completeness/palc", "complexity/background_overlap"):
        assert math.isnan(evaluation.metrics[key]["value"]), key
        assert evaluation.metrics[key]["skipped"] == 20, key


# -- cost -------------------------------------------------------------------------------------------------------------
def count_images(model, suite, images=8, **options):
    seen = []
    hook = model.backbone.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
    try:
        engine = Interpretability(suite, memory_budget=EIGHT, **options)
        run_engine(engine, model, tiny_birds(test_size=images), images)
        assert engine.evaluation.protocol["images_per_forward"] == images  # so that nothing is filled up
    finally:
        hook.remove()
    return sum(count for count in seen if count > 1) / images  # a single black image tells shapes and operations


@pytest.mark.parametrize(
    ("suite", "forwards"),
    [
        (["general", "compactness"], 1),
        (["complexity", "localisation"], 1),
        (["continuity"], 2),
        (["completeness"], 6),
        (["quanproto"], 7),
        (["alignment/consistency", "alignment/stability"], 4),
        (["alignment/misalignment_noise_pac"], 2),
        (["alignment/misalignment_pac"], 42),
        (["sanity/deletion", "sanity/insertion"], 1 + 2 * 71),
        (["sanity/randomised_ssim", "sanity/randomised_rank_correlation"], 2),
        (["sanity/randomised_ssim", "sanity/randomised_ssim@1", "sanity/randomised_rank_correlation@1"], 3),
        (["sanity/cell_alone", "sanity/gradient_inside"], 1 + 10 + 1),
    ],
)
def test_no_forward_is_done_twice(suite, forwards):
    assert count_images(built("ProtoPNet"), suite) == forwards


def test_metrics_that_need_many_images_get_the_whole_split():
    """Whatever the limit, and images beyond it are not explained."""
    whole = ["alignment/consistency", "alignment/stability", "alignment/purity", "alignment/parts_covered"]
    drawn, explained = ["general/accuracy", "complexity/iord"], []

    class Counted(Upsample):
        def attribute(self, model, images, targets, **more):
            explained.append(len(images))
            return super().attribute(model, images, targets, **more)

    def measured(keys, limit):
        data = tiny_birds(test_size=40)
        data.configure_loaders(limit=limit)
        engine = Interpretability(keys, explainer=Counted(), memory_budget=EIGHT)
        return run_engine(engine, built("ProtoPNet"), data)

    some = measured([*drawn, *whole], 8)
    assert sum(explained) == 8
    assert some.protocol["whole_split"] == whole
    alone, every = measured(drawn, 8), measured(whole, None)
    assert "whole_split" not in alone.protocol | every.protocol
    assert str(some.metrics) == str(alone.metrics | every.metrics)
    assert some.images == alone.images
    assert every.metrics["alignment/consistency"]["images_per_unit"] == 5
    assert math.isfinite(every.metrics["alignment/consistency"]["lift_over_random_peak_low"])
    assert str(measured(whole, 40).metrics) == str(every.metrics)  # nothing is left out


def test_a_last_layer_of_zeros_is_reported_whatever_the_suite():
    model = MODELS["Classifier"](num_classes=8, image_size=(32, 32)).eval()
    torch.nn.init.zeros_(model.linear.weight)
    torch.nn.init.zeros_(model.linear.bias)
    with pytest.warns(UserWarning, match=r"On 100.0% of the images the two largest logits are equal"):
        run_engine(Interpretability(["general/accuracy"]), model, tiny_birds())
