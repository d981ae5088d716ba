"""The FunnyBirds protocol in pictures: all scores, where explanations look and how important they call each part."""

from __future__ import annotations

from PIL import Image

from protometry.evaluation.pictures.family import Evaluated, PictureFamily
from protometry.evaluation.pictures.funnybirds.part_pictures import part_picture
from protometry.evaluation.pictures.funnybirds.spider import spider_plot
from protometry.explanations import BoxMaps, Explainer, SummedMaps
from protometry.explanations.charts import to_picture

TITLES = {"ssm": "summed similarity maps", "bb": "bounding boxes"}


def funnybirds_pictures(evaluated: Evaluated) -> dict[str, Image.Image]:
    """The spider plot, and parts with summed maps, boxes and what was evaluated side by side."""
    metrics, explainer, explained = evaluated.metrics, evaluated.class_explainer, evaluated.explained
    if explainer is None or "funnybirds/sd" not in metrics:
        return {}
    title, pictures = TITLES.get(explainer.key, explainer.key), {}
    if spider := spider_plot(metrics, f"{type(explained.model).__name__}, {title}"):
        pictures["spider"] = to_picture(spider)
    explainers: dict[str, Explainer] = {"ssm": SummedMaps(), "bb": BoxMaps(), explainer.key: explainer}
    by_title = {TITLES.get(key, key): protocol for key, protocol in explainers.items()}
    dataset = explained.datamodule.dataset(evaluated.split)
    return pictures | {"part_importance": part_picture(explained, dataset, by_title)}


FAMILY = PictureFamily(
    funnybirds_pictures,
    {
        "spider": "All scores of the protocol at once; further out is better.",
        "part_importance": "What the logit loses without each part, next to how important explanations call the part.",
    },
    page="FunnyBirds",
)
