"""Arguments that no kernel and no metric can take are refused in a sentence that names them."""

import pytest
import torch

from protometry import metrics as m
from protometry.metrics import functional as f
from protometry.metrics.primitives.checks import check_tensor

IDS, COUNTS, FLAGS, REAL = torch.zeros(2).long(), torch.ones(2, 2).long(), torch.ones(2, 3) > 0, torch.ones(2, 3)
MAPS, IMAGES, BOXES = torch.ones(2, 3, 4, 4), torch.ones(2, 3, 4, 5), torch.zeros(2, 1, 4).long()
ATTACK = (torch.sum, IMAGES, torch.ones(2, 1, 4, 5) > 0, 0.1, 0.1)
SCENE = (torch.ones(2, 4, 4), torch.ones(2, 3, 4, 4) > 0, torch.zeros(2, 3).long())  # attribution, masks and parts


def locate(parts):
    record = (REAL[:, :2], REAL[:, :2], MAPS[:, :2], torch.ones(2, 1, 2), FLAGS[:, :1], (8, 8))
    m.ConceptLocation(REAL[:, :2], parts, k=1).update(*record)


def overlap(parts):
    m.ConceptMaskIntersectionOverUnion(REAL[:, :2], parts, 1).update(*2 * [REAL[:, :2]], MAPS[:, :2], MAPS[:, :1] > 0)


REFUSED = [
    # alignment
    ("`steps` to be at least 0, but got -1", lambda: f.masked_projected_gradient(*ATTACK, steps=-1)),
    ("`mask` to be of shape", lambda: f.masked_projected_gradient(torch.sum, IMAGES, IMAGES, 0.1, 0.1)),
    ("`images` to be of shape", lambda: f.masked_projected_gradient(torch.sum, IMAGES[:, :1], *ATTACK[2:])),
    ("`start` to be of shape", lambda: f.masked_projected_gradient(*ATTACK, start=IMAGES[0])),
    ("`owner` to be of shape", lambda: f.misalignment_rank_change(REAL, REAL, IDS, IDS, FLAGS)),
    ("`active` to be of shape", lambda: f.misalignment_rank_change(REAL, REAL, IDS, IDS, FLAGS.T, torch.ones(3))),
    ("`hits` to be of shape", lambda: f.part_consistency(COUNTS.float(), COUNTS)),
    ("`visible` to be of shape", lambda: f.part_consistency(COUNTS, COUNTS[:, :1])),
    ("`unchanged` to be of shape", lambda: f.part_stability(IDS.float(), IDS)),
    ("`total` to be of shape", lambda: f.part_stability(IDS, IDS[:1])),
    ("`owner` to be of shape", lambda: f.parts_covered(COUNTS, COUNTS, FLAGS.T)),
    ("`owner` to be of shape", lambda: m.PartsCovered(REAL, 3)),
    *[
        ("`groups` to hold lists of part", lambda g=g: f.merge_parts(FLAGS, FLAGS, g))
        for g in ([], [[]], [[3]], [[-1]])
    ],
    *[("`inside`, `visible` to be bool", lambda v=v: f.merge_parts(FLAGS, v, [[0]])) for v in (FLAGS[:, :2], REAL)],
    ("`k` to be at least 1, but got 0", lambda: m.PartPurity(2, 3, k=0)),
    ("`num_parts` to be at least 1", lambda: m.PartPurity(2, 0)),
    ("`min_visible` to be at least 1", lambda: m.PartPurity(2, 3, min_visible=0)),
    ("`active` to be of shape", lambda: m.PartPurity(2, 3, active=FLAGS[0])),
    ("`groups` to hold lists of part indices", lambda: m.PartPurity(2, 3, groups=[[3]])),
    ("`inside` to be of shape", lambda: f.part_purity(FLAGS, FLAGS)),
    ("`visible` to be of shape", lambda: f.part_purity(FLAGS[None], COUNTS[None])),
    ("`min_visible` to be at least 1", lambda: f.part_purity(FLAGS[None], FLAGS[None], min_visible=0)),
    # change
    *[
        ("`perturbed_scores` to be of shape", lambda p=p: f.prototype_rank_change(REAL, p, COUNTS))
        for p in (REAL[:, :2], REAL[:, None], REAL[:1])
    ],
    # class representation
    *[("`labels` to hold values", lambda y=y: f.class_independence(REAL, IDS + y, 2)) for y in (2, -1)],
    ("`num_classes` to be at least 1", lambda: m.ClassIndependence(5, 0)),
    ("`max_iterations` to be at least 1", lambda: f.contrastiveness(REAL, 0)),
    ("`num_units` to be at least 1", lambda: m.Contrastiveness(0)),
    ("`active` to be of shape", lambda: m.Contrastiveness(4, FLAGS[0])),
    ("`predictions` to hold values from 0 to 1", lambda: f.scale_invariant_diversity(MAPS, REAL, IDS + 2)),
    ("`weight` to be of shape", lambda: f.structural_grounding(REAL, REAL.T)),
    ("`class_attributes` to hold values from 0", lambda: f.structural_grounding(REAL, -REAL)),
    # compactness
    *[
        (text, lambda kernel=kernel, given=given: kernel(*given))
        for kernel in (f.global_size, f.sparsity, f.negative_positive_ratio, f.number_of_features, f.features_per_class)
        for text, given in (
            ("`weight` to be of shape", (REAL[0], FLAGS[0])),
            ("`active` to be of shape", (REAL, FLAGS[0, :2])),
            ("`active` to be of shape .* dtype bool", (REAL, REAL[0])),
        )
    ],
    *[
        ("`threshold` to be finite and at least 0", lambda kernel=kernel, t=t: kernel(REAL, FLAGS[0], threshold=t))
        for kernel in (f.global_size, f.sparsity, f.negative_positive_ratio)
        for t in (torch.nan, torch.inf, -1.0)
    ],
    *[("`threshold` to lie in", lambda t=t: f.local_size(REAL, threshold=t)) for t in (torch.nan, torch.inf, -1.0)],
    # complexity and localisation
    ("`variant` to be one of", lambda: m.PartCoverageConsistency(1, 3, variant="published")),
    ("`visible` to be of shape", lambda: f.part_coverage_consistency(COUNTS, COUNTS[:, :1], IDS)),
    ("`variant` to be one of", lambda: f.part_coverage_consistency(COUNTS, COUNTS, IDS, "published")),
    ("`quantile` to lie strictly", lambda: f.region_intersection_over_union(MAPS, SCENE[1][:, 0], 1)),
    # sanity
    ("`steps` to be at least 1, but got 0", lambda: f.kept_area(MAPS[..., 0, :1])),
    ("`other_maps` to be of shape", lambda: f.map_rank_correlation(MAPS, MAPS[:, :1])),
    ("`maps` to be at least 7 pixels high and wide, but got .4, 4", lambda: f.map_structural_similarity(MAPS, MAPS)),
    ("`maps` to be of shape .2, k, H, W", lambda: f.shifted_maps(MAPS[:1], IDS)),
    ("`order` to be of shape .2, k, 4, 5", lambda: f.without_pixels(IMAGES, MAPS[:, :1].long(), 0.5)),
    # concepts
    *[("`k` to be at least 1 and at most", lambda k=k: f.concept_existence(REAL, FLAGS, k)) for k in (0, 4)],
    ("at most the 3 concepts, but got 6", lambda: m.ConceptExistence(REAL, k=6)),
    ("`subset` to be one of", lambda: m.ConceptExistence(REAL, 2, subset="right")),
    ("`prevalence_order` to hold every", lambda: m.ConceptExistence(REAL, 2, prevalence_order=torch.tensor([0, 0, 1]))),
    ("`prevalence_order` to hold every", lambda: m.ConceptExistence(REAL, 2, prevalence_order=torch.arange(1, 4))),
    ("`order` to hold every concept once", lambda: f.concept_existence_baselines(torch.ones(2), 1, IDS)),
    ("`prevalence` to hold values from 0 to 1", lambda: f.concept_existence_baselines(torch.tensor([0.5, 1.5]), 1)),
    ("`predictions` to hold values from 0 to 1", lambda: f.concept_importance(REAL, REAL, IDS - 1)),
    ("`annotation` to be of shape", lambda: m.ConceptGlobalImportance(REAL, REAL[:1])),
    ("`annotation` to hold values from 0", lambda: m.ConceptGlobalImportance(REAL, -REAL)),
    ("`annotation` to hold values from 0", lambda: f.concept_global_importance(REAL, -REAL)),
    ("`kind` to be 1, 2 or 3, but got 4", lambda: m.ConceptGlobalImportance(REAL, REAL, kind=4)),
    ("`mean_scores` for kind 2, but got None", lambda: f.concept_global_importance(REAL, REAL, kind=2)),
    ("`steps`, `trials` to be at least 1, but got 0 and 1", lambda: m.InterventionArea(steps=0)),
    ("with T, S . 1 = .1, 5.", lambda: m.InterventionArea(steps=4).update(torch.ones(2, 1, 3, 2), IDS)),
    ("`groups` to hold values from -1 to 1", lambda: f.group_uncertainty(REAL[:, :2], torch.tensor([0, 2]), 2)),
    ("`groups` to hold values from -1 to 1", lambda: f.intervention_masks(REAL[:, None, :2], torch.tensor([0, 2]))),
    ("`probabilities` to hold values from 0 to 1", lambda: f.group_uncertainty(1.5 * REAL[:, :2], IDS, 1)),
    ("at most the 1 concepts, but got 2", lambda: m.ConceptLocation(REAL[:, :2], torch.tensor([[0], [-1]]), k=2)),
    ("`part_locations` to hold the 5 parts of the concepts, but got 1", lambda: locate(torch.full((2, 1), 4))),
    ("`part_masks` to hold the 5 parts of the concepts, but got 1", lambda: overlap(torch.full((2,), 4))),
    ("`concept_parts` to be of shape", lambda: m.ConceptLocation(REAL, COUNTS, k=1)),
    ("`concept_parts` to hold values from -1", lambda: m.ConceptLocation(REAL[:, :2], -2 * COUNTS, k=1)),
    ("`concept_parts` to hold values from -1", lambda: m.ConceptMaskIntersectionOverUnion(COUNTS / 2, IDS - 2, k=1)),
    *[
        ("`alpha` to be above 0 and at most 12", lambda a=a: m.ConceptMaskIntersectionOverUnion(COUNTS / 2, IDS, 1, a))
        for a in (0, -1, 12.5)
    ],
    *[
        case
        for kind in (m.ConceptAccuracy, m.ConceptAUC, m.ConceptCalibrationError)
        for case in (
            ("`num_concepts` to be at least 1, but got 0", lambda kind=kind: kind(IDS, 0)),
            ("`concepts` to hold values from -1 to 1", lambda kind=kind: kind(IDS + 2, 2)),
        )
    ],
    *[
        ("probabilities` to hold values from 0 to 1", lambda kind=kind, p=p: kind(IDS, 3).update(p * COUNTS, FLAGS))
        for kind in (m.ConceptAccuracy, m.ConceptCalibrationError, m.InterconceptLeakage)
        for p in (1.5, -0.1)
    ],
    ("`size` to be one of .5, 10, 15, 20, 25, 30., but got 7", lambda: m.AccuracyAtNEC(7)),
    (
        "`labels` to hold values from 0 to 4",
        lambda: m.TCAVArea(torch.ones(5, 3) > 0).update(torch.ones(2, 2, 3), IDS + 5),
    ),
    # contrastivity
    ("`num_units` to be at least 1, but got 0", lambda: m.PrototypeEntropy(0)),
    ("`bins` to be at least 1, but got 0", lambda: m.PrototypeEntropy(2, bins=0)),
    ("`variant` to be one of", lambda: m.PrototypeEntropy(2, variant="published")),
    ("`active` to be of shape", lambda: m.PrototypeEntropy(2, active=FLAGS[0])),
    ("`bins` to be at least 1, but got 0", lambda: f.prototype_entropy(REAL, bins=0)),
    ("`variant` to be one of", lambda: f.prototype_entropy(REAL, variant="published")),
    ("`mode` to be one of", lambda: f.average_feature_distance(REAL, IDS, 2, mode="between")),
    ("`mode` to be one of", lambda: m.AverageFeatureDistance(2, 2, mode="between")),
    ("`num_channels` to be at least 1, but got 0", lambda: m.AverageFeatureDistance(2, 0)),
    ("`vectors` to be of shape", lambda: f.average_prototype_distance(REAL[0], COUNTS)),
    ("`active` to be of shape", lambda: f.average_prototype_distance(REAL, COUNTS, active=FLAGS[0])),
    ("`mode` to be one of", lambda: f.average_prototype_distance(REAL, COUNTS, mode="between")),
    ("`mode` to be one of", lambda: m.AveragePrototypeDistance(REAL, 2, mode="between")),
    ("`num_classes` to be at least 1, but got 0", lambda: m.AveragePrototypeDistance(REAL, 0)),
    ("`vectors` to be of shape", lambda: m.AveragePrototypeDistance(REAL[0], 2)),
    ("`active` to be of shape", lambda: m.AveragePrototypeDistance(REAL, 2, active=FLAGS[0])),
    ("`unit_ids` to hold ids below 2", lambda: m.AveragePrototypeDistance(REAL, 2).update(2 * COUNTS, IDS)),
    # funnybirds
    (
        "`labels` to hold values from 0 to 0",
        lambda: f.controlled_synthetic_data_check(FLAGS[:, None], IDS + 1, IDS, FLAGS[:1, None]),
    ),
    ("`number` to be at least 2", lambda: f.part_thresholds(1)),
    ("`variant` to be one of", lambda: f.covered_parts(SCENE[1][:, 0], *SCENE[1:], torch.ones(1), 3, "paper")),
    ("`predicted_parts` to be of shape .B, 1, 4", lambda: m.ImportantParts(1, num_parts=4).update(FLAGS[:, None], IDS)),
    ("`dilation` to be odd and at least 1, but got 2", lambda: f.part_importance(*SCENE, 3, 2)),
    ("`instance_part` to hold ids below 1", lambda: f.part_importance(*SCENE[:2], SCENE[2] + 1, 1)),
    ("`instance_masks` to be of shape .2, I, 4, 4", lambda: f.part_importance(SCENE[0], MAPS, SCENE[2])),
    ("`height` to be at least 1", lambda: f.part_dilation(0)),
    ("`kept` to be of shape .* dtype bool", lambda: f.subset_codes(REAL)),
    ("`kept_predictions` to be of shape .2, 8", lambda: f.preservation_check(FLAGS[:, None], COUNTS, IDS)),
    ("`num_thresholds` to be at least 1", lambda: m.PreservationCheck(0)),
    # general
    *[
        ("`num_classes` to be at least 1, but got 0", lambda kind=kind: kind(0))
        for kind in (m.BalancedAccuracy, m.F1Score, m.LabelF1Score)
    ],
    *[
        ("to have num_classes = 5 columns, but got", lambda kind=kind, y=y: kind(5).update(REAL, y))
        for kind, y in ((m.BalancedAccuracy, IDS), (m.F1Score, IDS), (m.LabelF1Score, FLAGS))
    ],
    *[
        ("`labels` to hold values from 0 to 2", lambda metric=metric, y=y: metric.update(REAL, IDS + y))
        for metric in (m.Accuracy(), m.TopKAccuracy(2), m.BalancedAccuracy(3), m.F1Score(3), m.CalibrationError())
        for y in (-1, 3)
    ],
    *[("`k` to be at least 1 and below the number", lambda k=k: f.top_k_accuracy(REAL, IDS, k)) for k in (0, 3, 4)],
    # primitives
    ("`masks` to be of shape .* dtype bool", lambda: f.bounding_boxes(REAL)),
    ("`points`, `boxes` to be of shapes", lambda: f.points_in_boxes(REAL[:, None, :2], BOXES[:1])),
    ("`points` to be of shape", lambda: f.points_in_boxes(REAL[:, None], BOXES)),
    ("`boxes` to be of shape", lambda: f.points_in_boxes(REAL[:, None, :2], BOXES[..., :3])),
    ("`half_width` to be at least 0, but got -1", lambda: f.window_boxes(COUNTS, (9, 9), -1)),
    ("`peaks` to be of shape", lambda: f.window_boxes(torch.zeros(3), (9, 9))),
    ("`patch` to be between 1 and 16 pixels, but got 32", lambda: f.patch_boxes(COUNTS, (7, 7), (16, 224))),
    ("`cells` to be of shape", lambda: f.cell_boxes(torch.zeros(3), (7, 7), (224, 224))),
    ("`cells` to be of shape", lambda: f.patch_boxes(torch.zeros(3), (7, 7), (224, 224))),
    ("`boxes` to be of shape", lambda: f.box_intersection_over_union(REAL, BOXES[:, 0])),
    ("`other` to be of shape", lambda: f.box_intersection_over_union(BOXES, torch.tensor(0))),
    ("`masks`, `other` to be bool", lambda: f.mask_intersection_over_union(REAL, REAL)),
    ("`other` to be of shape", lambda: f.weighted_intersection_over_union(REAL, REAL[:1])),
    *[
        case
        for c in (0.0, 1.0, -0.1, 95)
        for case in (
            ("`confidence` to lie strictly", lambda c=c: f.mean_interval(REAL[0, 0], REAL[0, 0], IDS[0], c)),
            ("`confidence` to lie strictly", lambda c=c: f.wilson_interval(REAL[0, 0], IDS[0], c)),
            ("`confidence` to lie strictly", lambda c=c: f.ratio_interval(torch.ones(5), IDS[0], c)),
        )
    ],
    ("`sums` to have shape .5,., but got", lambda: f.ratio_interval(torch.ones(4), IDS[0])),
    ("`mode` to be one of .*, but got 'nearest'", lambda: f.peak_locations(MAPS, (8, 8), "nearest")),
    *[
        case
        for noise in (f.keyed_noise, f.keyed_uniform)
        for case in (
            ("`sample_ids` to be of shape", lambda noise=noise: noise(IDS.int(), COUNTS, (2,))),
            ("`ranks` to be of shape", lambda noise=noise: noise(IDS, COUNTS[:1], (2,))),
        )
    ],
    ("`images` to be of shape", lambda: f.completeness_perturbation(IMAGES[0], BOXES, IDS)),
    ("`boxes` to be of shape", lambda: f.completeness_perturbation(IMAGES, BOXES[:1], IDS)),
    ("`sample_ids` to be of shape", lambda: f.completeness_perturbation(IMAGES, BOXES, IDS[:1])),
    ("`k` to be at least 1, but got 0", lambda: f.top_units(REAL, 0)),
    ("`scores` to be of shape", lambda: f.top_units(REAL[0])),
    ("`active` to be of shape", lambda: f.top_units(REAL, 1, FLAGS[0, :2])),
    ("`values` to have shape", lambda: f.gather_units(REAL[0], COUNTS)),
    ("`unit_ids` to be of shape", lambda: f.gather_units(REAL, COUNTS[:1])),
    ("`scores` to be of shape", lambda: f.unit_ranks(REAL[:, None], COUNTS)),
    ("`unit_ids` to be of shape", lambda: f.unit_ranks(REAL, COUNTS.int())),
    ("`active` to be of shape", lambda: f.unit_ranks(REAL, COUNTS, REAL[0])),
    *[
        ("`quantile` to lie strictly between 0 and 1", lambda kernel=kernel, q=q: kernel(MAPS, q))
        for kernel in (f.percentile_mask, f.clip_saliency)
        for q in (0.0, 1.0, 95)
    ],
    *[
        ("`maps` to be of shape .* dtype float with at least one pixel", lambda kernel=kernel, maps=maps: kernel(maps))
        for kernel in (f.percentile_mask, f.binarize_maps, f.peak_cells)
        for maps in (REAL[0], COUNTS, REAL[:, :0])
    ],
    *[("`threshold` to lie in", lambda t=t: f.binarize_maps(MAPS, t)) for t in (-0.1, 1.0)],
    (
        r"`x` to be of shape \(B, K\) and .* float, but got \(2,\) torch.int64",
        lambda: check_tensor("x", IDS, ("B", "K"), "float"),
    ),
    (
        r"`x` to be of shape \(2, 4\) .* but got \(2, 3\) torch.float32",
        lambda: check_tensor("x", REAL, (2, 4), "float"),
    ),
    (r"`x` to be of shape \(2,\) and dtype bool", lambda: check_tensor("x", IDS, (2,), "bool")),
    ("dtype float, but got .* torch.bool", lambda: check_tensor("x", FLAGS, (2, 3), "float")),
]


@pytest.mark.parametrize(("text", "call"), REFUSED, ids=[text for text, _ in REFUSED])
def test_refused(text, call):
    with pytest.raises(ValueError, match=f"Expected .*{text}"):
        call()


def test_refused_types_and_options():
    with pytest.raises(TypeError, match=r"`values` to be float where a slot is empty, but got torch\.int64"):
        f.gather_units(COUNTS, COUNTS - 2)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `top`"):
        m.Accuracy(top=1)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        check_tensor("scores", REAL.to(dtype), ("B", 3), "float")
