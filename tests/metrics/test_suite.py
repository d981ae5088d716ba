import inspect
import sys
from types import SimpleNamespace

import pytest
import torch
import torchmetrics
from torchmetrics import MetricCollection

from protometry import metrics
from protometry.datamodules import SketchBirds
from protometry.metrics import functional as kernels
from protometry.metrics import suite
from protometry.metrics.entry import Family, MetricEntry, Words
from protometry.metrics.facts import Facts
from protometry.metrics.suite import ENTRIES, FAMILIES, build, resolve

ACTIVE = torch.arange(6) < 5


def facts(num_classes=5, multi_label=False, has_weight=True, missing=lambda flag: None, **changes):
    with_tables = missing("class_attributes") is None
    units = {
        "kind": "concept", "active": ACTIVE, "owner": torch.ones(6, num_classes, dtype=torch.bool),
        "weight": torch.ones(num_classes, 6) if has_weight else None, "vectors": torch.eye(6), "presence": None,
        "concepts": torch.arange(6),
    }  # fmt: skip
    tables = {
        "part_names": ["left leg", "right leg"], "part_group_names": ["leg"], "part_to_group": torch.zeros(2).long(),
        "label_map_codes": {"foot": (1,)}, "concept_to_part": torch.zeros(6).long(),
        "concept_to_group": torch.arange(6) // 2,
        "class_attributes": torch.ones(num_classes, 4) if with_tables else None,
        "class_concepts": torch.ones(num_classes, 6) if with_tables else None,
        "class_truth": torch.eye(num_classes, 6) > 0 if with_tables else None,
    }  # fmt: skip
    options = {
        "channels": 3, "abstains": True, "residual": True, "own_values": "binary", "percentiles": True,
        "unit_concepts": torch.arange(6), "concept_order": torch.arange(6),
        "class_parts": torch.arange(num_classes)[:, None].expand(-1, 3), "stamp": SimpleNamespace(label=0),
        "removable_parts": ("beak", "foot", "wing"),
    }  # fmt: skip
    for known in (units, tables, options):
        known.update((name, changes.pop(name)) for name in list(changes) if name in known)
    tables = SimpleNamespace(**tables)
    return Facts(num_classes, multi_label, SimpleNamespace(**units), tables, missing, **(options | changes))


def test_suites():
    full = resolve(["concepts_full", "sanity_full"])
    every = [key for family in FAMILIES.values() for key in family.keys]
    assert resolve(["all"]) == every
    assert set(resolve(["all"])) == {key for key in ENTRIES if key not in full or key in every}
    published = [f"concepts/{name}@5{end}" for name in ("cem", "clm") for end in ("", "_weight", "_score")]
    assert {*published, "concepts/cem@1_score_correct", "concepts/clm@3_a6_weight", *FAMILIES["concepts"].keys} < set(
        full
    )
    quanproto = resolve(["quanproto"])
    assert set(quanproto) < set(ENTRIES)
    assert {key.split("/")[0] for key in quanproto} == FAMILIES.keys() - {
        "alignment",
        "localisation",
        "sanity",
        "class_representation",
        "concepts",
        "intervention",
        "funnybirds",
    }


def test_resolve():
    general, compactness = FAMILIES["general"].keys, FAMILIES["compactness"].keys
    assert resolve(["compactness", "general"]) == [*compactness, *general]
    assert resolve(["compactness/npr", "general", "compactness"])[:2] == ["compactness/npr", general[0]]
    assert len(resolve(["compactness/npr", "compactness", "general"])) == len(general + compactness)
    assert resolve([]) == []


def test_resolve_names_every_mistake_once():
    with pytest.raises(
        ValueError,
        match=r"names among .*'general', .*, but got \['genral/f1', 'x/y'\]. Did you mean 'general/f1'\?",
    ):
        resolve(["general", "genral/f1", "x/y"])
    with pytest.raises(TypeError, match=r"`suite` to be a list of names, but got 'all'; write \['all'\]"):
        resolve("all")
    with pytest.raises(ValueError, match=r"but got \['general/none'\]"):
        build(["general/none"], facts())


def test_everything_applies():
    built, skipped = build(["all"], facts())
    assert (list(built), skipped) == (resolve(["all"]), {})
    assert built["general/f1"].num_classes == built["general/balanced_accuracy"].num_classes == 5
    assert built["compactness/local_size"].active.tolist() == ACTIVE.tolist()
    assert built["alignment/consistency"].half_width == 36


def test_saliency_is_clipped_by_the_engine_and_lengths_scale_with_the_image():
    built, _ = build(["completeness", "compactness", "complexity", "alignment"], facts(image_size=(112, 56)))
    clipped = ("completeness/vlc", "completeness/vac", "compactness/distinct_regions", *FAMILIES["complexity"].keys)
    assert [built[key].quantile for key in clipped] == [None] * 7
    assert built["alignment/stability"].half_width == built["alignment/consistency"].half_width == 18


def test_variants_reach_the_metrics_that_have_one():
    built, _ = build(["quanproto"], facts(variant="quanproto"))
    having = {key for key, metric in built.items() if getattr(metric, "variant", None) == "quanproto"}
    assert having == {
        *("compactness/global_size", "completeness/pac", "continuity/pac", "continuity/cac"),
        *("contrastivity/entropy", "complexity/consistency"),
    }


def test_keys_of_one_attack_share_their_metric():
    built, _ = build(["alignment"], facts())
    attacked = [metric for key, metric in built.items() if "/misalignment_" in key]
    assert (len(attacked), len({id(metric) for metric in attacked})) == (8, 2)


def test_units_without_a_weight_are_not_pure():
    weight = torch.tensor([[1.0, 0, 0, 0, 0, 3], [0, -1, 0, 0, 0, 0]])
    having = facts(weight=weight, num_classes=2)
    assert build(["alignment/purity"], having)[0]["alignment/purity"].active.tolist() == [True, *[False] * 5]
    built, skipped = build(["class_representation"], having)
    assert built["class_representation/contrastiveness"].units.tolist() == [0, 1]
    assert built["class_representation/class_independence"].active.tolist() == [True, True, *[False] * 4]
    assert skipped == {"class_representation/sid@5": "five_features: no class has five weights that are not 0"}
    reason = {"class_representation/contrastiveness": "features: no unit has a weight that is not 0"}
    assert build(list(reason), facts(weight=0 * weight)) == ({}, reason)


def test_reasons():
    absent = facts(
        3, multi_label=True, has_weight=False, missing=lambda flag: f"no {flag}", vectors=None, channels=None,
        abstains=False, residual=False, training="other data",
    )  # fmt: skip
    built, skipped = build(["all"], absent)
    assert {key: type(metric).__name__ for key, metric in built.items() if key.startswith(("general", "comp"))} == {
        "general/accuracy": "SubsetAccuracy",
        "general/f1": "LabelF1Score",
        "compactness/global_size": "GlobalSize",
        "compactness/local_size": "LocalSize",
        "compactness/distinct_regions": "DistinctRegions",
        "completeness/vlc": "VisualizationLocationChange",
        "completeness/vac": "VisualizationActivationChange",
        "completeness/plc": "PrototypeLocationChange",
        "completeness/psc": "PrototypeSimilarityChange",
        "completeness/prc": "PrototypeRankChange",
        "completeness/palc": "PrototypeActivationLocationChange",
        "completeness/pac": "PrototypeActivationChange",
    }
    assert built["continuity/cac"].link == "sigmoid"
    reasons = {"funnybirds/bi": "class_parts: the classes are not composed of parts"}
    assert build(["funnybirds/bi"], facts(class_parts=None))[1] == reasons
    reasons = {"funnybirds/totals_not_positive": "part_shares: boxes do not use shares of a sum"}
    assert build(["funnybirds"], facts(part_shares=False))[1] == reasons
    labels, weight = "single_label: the data are multilabel", "weight: the model has no weight matrix"
    parts, latent = "part_points: no part_points", "latent: the model has no latent map"
    trained = "training: other data"
    assert {skipped.pop(key) for key in (*FAMILIES["concepts"].keys, *FAMILIES["intervention"].keys)} == {
        f"{labels}; concepts_class|concepts_image: no concepts_class; no concepts_image",
        f"{labels}; {trained}",
        f"{labels}; interventions: no interventions; label_map: no label_map",
        f"{labels}; residual: the units of the model explain its logits completely",
        f"{latent}; {labels}; {trained}; class_concepts: no class_attributes; "
        "concepts_class|concepts_image: no concepts_class; no concepts_image",
        f"{weight}; {labels}; class_concepts: no class_attributes",
        f"{weight}; {labels}; {trained}; concepts_class|concepts_image: no concepts_class; no concepts_image",
        f"{weight}; {labels}; {trained}; {parts}",
        f"{weight}; {labels}; {trained}; label_map: no label_map",
    }
    assert {skipped.pop(key) for key in FAMILIES["funnybirds"].keys} == {
        labels,
        f"{labels}; interventions: no interventions",
        f"{labels}; interventions: no interventions; label_map: no label_map",
    }
    assert skipped == {
        "general/balanced_accuracy": labels,
        "general/calibration_error": labels,
        "general/ties": labels,
        "general/top3_accuracy": f"{labels}; num_classes: top-3 accuracy needs more than 3 classes",
        "general/abstention": "abstention: the model decides on every image",
        "compactness/sparsity": weight,
        "compactness/npr": weight,
        "compactness/number_of_features": weight,
        "compactness/features_per_class": weight,
        "compactness/decision_share": "decision: the model has neither a weight matrix nor a tree",
        "continuity/crc": labels,
        "contrastivity/apd_intra": f"vectors: the units of the model have no vectors; {labels}",
        "contrastivity/apd_inter": f"vectors: the units of the model have no vectors; {labels}",
        "contrastivity/afd_intra": f"{latent}; {labels}",
        "contrastivity/afd_inter": f"{latent}; {labels}",
        "complexity/object_overlap": "object_mask: no object_mask",
        "complexity/background_overlap": "object_mask: no object_mask",
        "complexity/iord": "object_mask: no object_mask",
        "complexity/consistency": parts,
        "alignment/consistency": f"{parts}; {labels}",
        "alignment/stability": f"{parts}; {labels}",
        "alignment/stability_nonempty": f"{parts}; {labels}",
        "alignment/purity": parts,
        "alignment/parts_covered": f"{parts}; {labels}",
        **dict.fromkeys(
            ("alignment/on_object", *FAMILIES["localisation"].keys),
            "object_mask|bounding_box: no object_mask; no bounding_box",
        ),
        "class_representation/structural_grounding": f"{weight}; class_attributes: no class_attributes; {labels}",
        "class_representation/contrastiveness": f"{weight}; training: other data",
        "class_representation/class_independence": f"{weight}; training: other data; {labels}",
        "class_representation/sid@5": weight,
        **dict.fromkeys(("sanity/exchanged_accuracy", "sanity/exchanged_agreement"), f"{labels}; training: other data"),
        "sanity/shortcut_success": labels,
    }
    assert build(["general/top3_accuracy"], facts(num_classes=4))[1] == {}
    untrainable = build(["sanity"], facts(has_backbone=False))[1]
    assert set(untrainable.values()) == {"backbone: no parameter of the model is in a backbone group"}
    assert untrainable.keys() == {"sanity/randomised_rank_correlation", "sanity/randomised_ssim"}
    cascade = {f"sanity/randomised_{name}@{n}" for name in ("rank_correlation", "ssim") for n in (1, 3)}
    assert set(resolve(["sanity_full"])) - set(resolve(["sanity"])) == cascade
    few = {f"sanity/randomised_{name}@3" for name in ("rank_correlation", "ssim")}
    reason = "stages@3: the backbone has 2 stages with weights, fewer than 3"
    assert build(["sanity_full"], facts(stages=2))[1] == dict.fromkeys(few, reason)
    unplanted = dict.fromkeys(("sanity/shortcut_success", "sanity/shortcut_units"), "stamp: no shortcut was planted")
    assert build(["sanity"], facts(stamp=None))[1] == unplanted


def test_an_explainer_of_classes_cannot_serve_metrics_of_units():
    built, skipped = build(["all"], facts(explained="explainer 'lrp' explains classes only"))
    explained = {key for name in ("completeness", "complexity", "sanity") for key in FAMILIES[name].keys}
    unexplained = {"compactness/distinct_regions", *explained}
    unexplained -= {key for key in explained if "explainer" not in ENTRIES[key].needs}
    assert (set(skipped), set(skipped.values())) == (unexplained, {"explainer: explainer 'lrp' explains classes only"})
    assert {"continuity/plc", *FAMILIES["localisation"].keys} <= set(built)


def test_a_single_active_unit_has_nothing_to_contrast():
    one = facts()
    one = facts(active=torch.arange(6) == 1)
    assert build(["contrastivity/plc"], one)[1] == {"contrastivity/plc": "two_units: fewer than two units are active"}


WORDS = Words("Is it?", "Own", "1", "none", "Never.")


def test_a_family_of_ones_own_joins_by_its_import_path_and_may_need_a_field_of_the_data(monkeypatch):
    own = Family("own", "Is it?", (MetricEntry("own/new", metrics.Accuracy, WORDS, needs=("object_mask",)),))
    taken = Family("general", "Is it?", (MetricEntry("general/new", metrics.Accuracy, WORDS),))
    suite_ = Family("all", "Is it?", ())
    one, two = (MetricEntry(f"mine/{name}", metrics.Accuracy, WORDS) for name in ("one", "two"))
    content = {"OWN": own, "TAKEN": taken, "NUMBER": 1, "SUITE": suite_, "ONE": one, "TWO": two}
    monkeypatch.setitem(sys.modules, "my_package", SimpleNamespace(**content, FOREIGN=taken.entries[0]))
    monkeypatch.setattr(suite, "_ONE_BY_ONE", {})
    monkeypatch.setattr(suite, "ENTRIES", dict(ENTRIES))
    monkeypatch.setattr(suite, "FAMILIES", dict(FAMILIES))
    assert resolve(["my_package.OWN", "my_package.OWN"]) == ["own/new"]
    assert (list(build(["own/new", "own"], facts())[0]), resolve(["my_package.OWN/new"])) == (["own/new"], ["own/new"])
    assert resolve(["my_package.TWO", "my_package.ONE", "my_package.TWO"]) == ["mine/two", "mine/one"]
    assert resolve(["mine"]) == ["mine/two", "mine/one"]
    absent = facts(missing={"object_mask": "no segmentations/ under root"}.get)
    assert build(["own"], absent) == ({}, {"own/new": "object_mask: no segmentations/ under root"})
    for path, reason in (
        ("my_package.TAKEN", "to have a name of its own, but 'general' is taken"),
        ("my_package.FOREIGN", "to have a name of its own, but 'general' is taken"),
        ("my_package.OWN/old", r"but got \['own/old'\]"),
        ("my_package.SUITE", "to have a name of its own, but 'all' is taken"),
        ("my_package.NUMBER", "to be a MetricEntry or Family of .*, but got 1"),
        ("my_package.NONE", "but my_package has no such name"),
        ("no_package.OWN", "but No module named 'no_package'. Install it, or put it on PYTHONPATH"),
    ):
        with pytest.raises(ValueError, match=reason):
            resolve([path])


def test_an_unknown_need_names_its_metric(monkeypatch):
    monkeypatch.setitem(ENTRIES, "general/new", MetricEntry("general/new", metrics.Accuracy, WORDS, needs=("unitz",)))
    with pytest.raises(ValueError, match=r"needs of general/new to be among \[.*'units'.*\] or .*, but got 'unitz'"):
        build(["general/new"], facts(missing=SketchBirds("tiny").capabilities("test").missing))


def test_keys_of_a_family_begin_with_its_name_and_differ():
    entry = MetricEntry("own/new", metrics.Accuracy, WORDS)
    with pytest.raises(ValueError, match=r"keys of the family 'other' to begin with other/, but got \['own/new'\]"):
        Family("other", "Is it?", (entry,))
    with pytest.raises(ValueError, match="every key of the family 'own' once"):
        Family("own", "Is it?", (entry, entry))


def test_each_call_builds_new_metrics():
    first, second = build(["general"], facts())[0], build(["general"], facts())[0]
    assert all(first[key] is not second[key] for key in first)


def test_a_collection_never_shares_states():
    # the first batch leaves equal states; top-3 accuracy printed the value of accuracy
    collection = MetricCollection({"accuracy": metrics.Accuracy(), "top3": metrics.TopKAccuracy(3)})
    for logits in ([3.0, 2.0, 1.0, 0.0], [2.0, 3.0, 1.0, 0.0]):
        collection.update(preds=torch.tensor([logits]), target=torch.tensor([0]))  # torchmetrics' names serve, too
    assert {key: value.item() for key, value in collection.compute().items()} == {"accuracy": 0.5, "top3": 1}
    alone = metrics.Accuracy()
    assert alone(preds=torch.tensor([[0.0, 1.0]]), target=torch.tensor([1])) == 1
    # every metric of the suite three times, two of them alike: untouched, all sums are 0
    several = [
        metric
        for variant, multi_label in (("paper", False), ("quanproto", False), ("quanproto", True))
        for metric in {
            id(m): m for m in build(["all"], facts(variant=variant, multi_label=multi_label))[0].values()
        }.values()
    ]
    several += [
        check for metric in several if isinstance(metric, metrics.FunnyBirdsScores) for check in metric.checks.values()
    ]
    missing = {kind for kind in vars(metrics).values() if inspect.isclass(kind)} - {type(metric) for metric in several}
    assert all(inspect.isabstract(kind) for kind in missing)
    collection = MetricCollection({str(index): metric for index, metric in enumerate(several)})
    collection._merge_compute_groups()
    assert len(collection.compute_groups) == len(several) > 120


def test_exports():
    assert not any(map(inspect.ismodule, vars(kernels).values()))  # a file may have the name of its kernel
    assert all(issubclass(kind, torchmetrics.Metric) for kind in vars(metrics).values() if inspect.isclass(kind))
