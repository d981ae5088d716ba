"""Kernels of the metrics: pure functions of tensors, without state.

A kernel refuses an argument of another shape, dtype or range than its ``Args`` say, with a ``ValueError``.
"""

from protometry.metrics.alignment.misalignment_attack import masked_projected_gradient
from protometry.metrics.alignment.misalignment_changes import (
    accuracy_change,
    misalignment_activation_change,
    misalignment_location_change,
    misalignment_rank_change,
)
from protometry.metrics.alignment.on_object import peak_object_share
from protometry.metrics.alignment.part_consistency import part_consistency
from protometry.metrics.alignment.part_groups import merge_parts
from protometry.metrics.alignment.part_purity import part_purity
from protometry.metrics.alignment.part_stability import part_stability
from protometry.metrics.alignment.parts_covered import parts_covered
from protometry.metrics.change.classification_activation_change import classification_activation_change
from protometry.metrics.change.classification_rank_change import classification_rank_change
from protometry.metrics.change.prototype_activation_change import prototype_activation_change
from protometry.metrics.change.prototype_activation_location_change import prototype_activation_location_change
from protometry.metrics.change.prototype_location_change import prototype_location_change
from protometry.metrics.change.prototype_rank_change import prototype_rank_change
from protometry.metrics.change.prototype_similarity_change import prototype_similarity_change
from protometry.metrics.change.visualization_activation_change import visualization_activation_change
from protometry.metrics.change.visualization_location_change import visualization_location_change
from protometry.metrics.class_representation.class_independence import class_independence
from protometry.metrics.class_representation.contrastiveness import contrastiveness, normal_overlap
from protometry.metrics.class_representation.scale_invariant_diversity import scale_invariant_diversity
from protometry.metrics.class_representation.structural_grounding import (
    class_similarity,
    similar_class_pairs,
    structural_grounding,
)
from protometry.metrics.compactness.decision_share import decision_share
from protometry.metrics.compactness.distinct_regions import distinct_regions
from protometry.metrics.compactness.features_per_class import features_per_class, number_of_features
from protometry.metrics.compactness.global_size import global_size
from protometry.metrics.compactness.local_size import local_size
from protometry.metrics.compactness.negative_positive_ratio import negative_positive_ratio
from protometry.metrics.compactness.sparsity import sparsity
from protometry.metrics.complexity.inside_outside_relevance_difference import inside_outside_relevance_difference
from protometry.metrics.complexity.overlap import background_overlap, object_overlap
from protometry.metrics.complexity.part_coverage_consistency import part_coverage_consistency
from protometry.metrics.concepts.auc import concept_auc, name_units
from protometry.metrics.concepts.existence import concept_existence, concept_existence_baselines
from protometry.metrics.concepts.global_importance import concept_global_importance
from protometry.metrics.concepts.impurity import niche_impurity, oracle_impurity
from protometry.metrics.concepts.leakage import mutual_information
from protometry.metrics.concepts.location import concept_location
from protometry.metrics.concepts.maps import concept_activation_maps
from protometry.metrics.concepts.part_overlap import concept_mask_intersection_over_union
from protometry.metrics.concepts.ranked_concepts import Order, Ranking, concept_importance
from protometry.metrics.concepts.residual_share import residual_share
from protometry.metrics.contrastivity.cosine_distance import Mode
from protometry.metrics.contrastivity.entropy import prototype_entropy
from protometry.metrics.contrastivity.feature_distance import average_feature_distance, nearest_features
from protometry.metrics.contrastivity.location_contrast import (
    prototype_activation_location_contrast,
    prototype_location_contrast,
)
from protometry.metrics.contrastivity.prototype_distance import average_prototype_distance
from protometry.metrics.funnybirds.background_independence import background_independence
from protometry.metrics.funnybirds.completeness import funnybirds_aggregate, heldout_completeness, select_threshold
from protometry.metrics.funnybirds.controlled_synthetic_data_check import (
    controlled_synthetic_data_check,
    minimal_sufficient_sets,
)
from protometry.metrics.funnybirds.distractibility import distractibility, irrelevant_candidates
from protometry.metrics.funnybirds.important_parts import (
    CoverageVariant,
    covered_parts,
    important_parts,
    part_thresholds,
)
from protometry.metrics.funnybirds.part_importance import part_dilation, part_importance
from protometry.metrics.funnybirds.preservation_and_deletion import deletion_check, preservation_check, subset_codes
from protometry.metrics.funnybirds.single_deletion import single_deletion
from protometry.metrics.funnybirds.target_sensitivity import target_pairs, target_sensitivity
from protometry.metrics.general.accuracy import accuracy, subset_accuracy
from protometry.metrics.general.balanced_accuracy import balanced_accuracy
from protometry.metrics.general.calibration_error import confidence_bins
from protometry.metrics.general.f1 import f1_score, label_f1_score
from protometry.metrics.general.top_k_accuracy import top_k_accuracy
from protometry.metrics.intervention.corrections import group_uncertainty, intervention_masks
from protometry.metrics.intervention.intervention import intervention_curve
from protometry.metrics.localisation.pointing_game import energy_pointing_game, pointing_game
from protometry.metrics.localisation.region_intersection_over_union import region_intersection_over_union
from protometry.metrics.primitives.boxes import bounding_boxes, cell_boxes, patch_boxes, points_in_boxes, window_boxes
from protometry.metrics.primitives.calibration import calibration_bins, calibration_error
from protometry.metrics.primitives.intersection_over_union import (
    box_intersection_over_union,
    mask_intersection_over_union,
    weighted_intersection_over_union,
)
from protometry.metrics.primitives.intervals import (
    lift_interval,
    mean_interval,
    pairs_interval,
    ratio_interval,
    stratified_wilson_interval,
    wilson_interval,
)
from protometry.metrics.primitives.peaks import peak_cells, peak_locations
from protometry.metrics.primitives.perturbation import (
    completeness_perturbation,
    keyed_noise,
    keyed_uniform,
    only_boxes,
    random_cells,
    removal_order,
    shifted_maps,
    without_pixels,
)
from protometry.metrics.primitives.ranking import gather_units, top_units, unit_ranks
from protometry.metrics.primitives.regions import binarize_maps, clip_saliency, percentile_mask
from protometry.metrics.primitives.variants import Variant
from protometry.metrics.sanity.deletion import kept_area
from protometry.metrics.sanity.place import kept_share, share_inside
from protometry.metrics.sanity.randomisation import map_rank_correlation, map_structural_similarity
from protometry.metrics.sanity.shortcut_success import shortcut_success
