"""What every metric asks, in plain words, for readers who have not read the papers."""

from __future__ import annotations

import re

FAMILIES = {
    "general": "Is the model right?",
    "compactness": "How much is there to look at?",
    "completeness": "Noise is added everywhere but where the unit looked: does its explanation stay the same?",
    "continuity": "The colours of the whole image change slightly: does the explanation stay the same?",
    "contrastivity": "Do the units differ from each other?",
    "complexity": "Do the units look at the object, and always at the same part?",
    "alignment": "Does a unit stand for one part of the object, even under noise and attack?",
    "localisation": "Do the maps lie on the object?",
    "class_representation": "What are classes made of: are similar classes alike, and features general and diverse?",
    "concepts": "Are the concepts right, in the image, where they should be, and fit for their classes?",
    "intervention": "Does the decision get better where a person corrects wrong concepts?",
    "funnybirds": "Parts of the object are removed: does the explanation say what the model needs?",
}
_CHANGES = {
    "vlc": "How far does the box of what a unit saw most of move?",
    "vac": "How much does the relevance of the pixels change?",
    "plc": "How many cells does the peak of a unit move?",
    "psc": "How much does the score of a unit change?",
    "prc": "How many ranks does a unit move among all units?",
    "palc": "How far does the region of high scores of a unit move?",
    "pac": "How much do the scores of a unit change over the image?",
    "cac": "How much do the probabilities of the classes change?",
    "crc": "How many ranks does the predicted class lose?",
}
WORDS = {
    "general/accuracy": "How many images get their right class?",
    "general/balanced_accuracy": "The same, with every class counting equally.",
    "general/top3_accuracy": "How often is the right class among the three likeliest?",
    "general/f1": "Are classes found, and not claimed wrongly, every class counting equally?",
    "general/abstention": "On how many images does the model decide nothing?",
    "compactness/global_size": "How many units does the model use?",
    "compactness/local_size": "How many units speak in one image?",
    "compactness/sparsity": "How many weights are zero?",
    "compactness/npr": "How many weights speak against a class, for each that speaks for one?",
    "compactness/number_of_features": "How many units have any weight?",
    "compactness/features_per_class": "How many units is a class made of?",
    **{f"{family}/{name}": words for family in ("completeness", "continuity") for name, words in _CHANGES.items()},
    "contrastivity/plc": "How far apart are the peaks of the units of one image?",
    "contrastivity/palc": "How different are the regions of the units of one image?",
    "contrastivity/apd_intra": "How different are the prototypes of one class?",
    "contrastivity/apd_inter": "How different are the prototypes of different classes?",
    "contrastivity/afd_intra": "How different is what the units of one class find?",
    "contrastivity/afd_inter": "How different is what the units of different classes find?",
    "contrastivity/entropy": "Does a unit say yes or no, or something in between?",
    "complexity/object_overlap": "How much of the object is marked?",
    "complexity/background_overlap": "How much of what is marked is background?",
    "complexity/iord": "Is the object marked more strongly than the background?",
    "complexity/consistency": "Does a unit mark the same parts in all images?",
    "alignment/consistency": "Does a unit have one part beside its peak in the images of its class?",
    "alignment/stability": "Does it find the same part under noise?",
    "alignment/stability_nonempty": "The same, of the units that found a part at all.",
    "alignment/purity": "Do the strongest patches of a unit show one part?",
    "alignment/on_object": "How often does a unit look at the object?",
    "alignment/parts_covered": "How many parts do the units of a class point at?",
    "alignment/misalignment_pac": "Can changes elsewhere in the image weaken a unit?",
    "alignment/misalignment_plc": "Can changes elsewhere move the place it looks at?",
    "alignment/misalignment_prc": "Can changes elsewhere let other units overtake it?",
    "alignment/misalignment_ac": "Can changes elsewhere make the model wrong?",
    "localisation/pointing_game": "Does the strongest pixel lie on the object?",
    "localisation/energy": "How much of the relevance lies on the object?",
    "localisation/iou": "How well do the marked pixels cover the object?",
    "class_representation/structural_grounding": "Are classes with similar attributes made of similar units?",
    "class_representation/contrastiveness": "Do the scores of a unit fall into two groups?",
    "class_representation/class_independence": "Is a unit shared by many classes?",
    "class_representation/sid": "Do the units of a decision look at different places?",
    "concepts/cgim1": "Are the weights of the concepts like the attributes of the classes?",
    "concepts/cgim2": "Are the weights, times the scores, like the attributes of the classes?",
    "concepts/cgim3": "Are the scores of the concepts like the attributes of the classes?",
    "concepts/cem": "Are the concepts that decided in the image?",
    "concepts/clm": "Do the concepts that decided look where their part is?",
    "concepts/part_iou": "How well do they cover their part?",
    "concepts/accuracy": "How many concepts are right?",
    "concepts/auc": "How well do scores separate images with a concept from those without?",
    "concepts/ece": "Is a concept as frequent as its probability says?",
    "concepts/residual_share": "How much of the decision passes the concepts by?",
    "funnybirds/accuracy": "How many whole birds get their right class?",
    "funnybirds/bi": "Does the decision stay when objects of the background are removed?",
    "funnybirds/csdc": "Are the parts that suffice for the class called important?",
    "funnybirds/pc": "Does the decision stay when only the important parts are left?",
    "funnybirds/dc": "Does the decision change when the important parts are removed?",
    "funnybirds/d": "Are parts that do not matter called unimportant?",
    "funnybirds/sd": "Does a part matter as much as the explanation says?",
    "funnybirds/correctness": "Does a part matter as much as the explanation says?",
    "funnybirds/ts": "Does the explanation of another class find the parts of that class?",
    "funnybirds/contrastivity": "Does the explanation of another class find the parts of that class?",
    "funnybirds/completeness": "Are the important parts enough, needed, and no others?",
    "funnybirds/overall": "How good are explanations on the whole?",
    "funnybirds/important_parts": "How many parts are called important?",
    "funnybirds/hidden_parts": "How many parts of the birds cannot be seen?",
    "funnybirds/totals_not_positive": "How many explanations have nothing that speaks for the class?",
    "intervention/area": "How good is the model, averaged over the steps of correction?",
    "intervention/final": "How good is it with all concepts corrected?",
}


def asks(key: str) -> str:
    """What a metric asks; the question of its family for metrics that have no sentence of their own.

    Args:
        key: of a result.

    Example:
        >>> asks("general/accuracy"), asks("concepts/cem@3_abs")
        ('How many images get their right class?', 'Are the concepts that decided in the image?')
    """
    if "_noise_" in key:
        return f"{asks(key.replace('_noise', ''))} (with random changes)"
    stem = re.sub(r"@.*$|_(concept|class|uncertainty|single|binary|percentiles|mean|area|heldout)(?=_|$).*$", "", key)
    return WORDS.get(key) or WORDS.get(stem) or FAMILIES.get(key.split("/")[0], "")


def better(higher: bool | None) -> str:
    """Which way is good, in words.

    Args:
        higher: whether higher is better; None if neither is.
    """
    return "" if higher is None else "higher is better" if higher else "lower is better"
