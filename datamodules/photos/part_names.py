"""Names of parts: left and right are one group, and an attribute is about the part that its name begins with."""

from __future__ import annotations

PART_OF_REGION = {"bill": "beak", "head": "forehead", "upper_tail": "tail", "under_tail": "tail"}  # of CUB-200-2011


def part_groups(part_names: list[str]) -> tuple[list[str], list[int]]:
    """Merge left and right parts: the group names in order of first appearance, and each part's group.

    Example:
        >>> part_groups(["beak", "left eye", "right eye"])
        (['beak', 'eye'], [0, 1, 1])
    """
    merged = [name.removeprefix("left ").removeprefix("right ") for name in part_names]
    names = list(dict.fromkeys(merged))
    return names, [names.index(name) for name in merged]


def part_of_concept(name: str, part_groups: list[str]) -> int:
    """Index of the part group an attribute is about, -1 if it is about no single part (size, shape, whole plumage).

    Example:
        >>> part_of_concept("has_bill_shape::dagger", ["back", "beak"]), part_of_concept("has_size::small", ["back"])
        (1, -1)
        >>> part_of_concept("ear::round", ["eye", "ear"]), part_of_concept("ear_color::red", ["eye", "ear"])
        (1, 1)
    """
    question = name.split("::")[0].removeprefix("has_")
    region = question if question in part_groups else question.rpartition("_")[0]
    part = region if region in part_groups else PART_OF_REGION.get(region, region)
    return part_groups.index(part) if part in part_groups else -1
