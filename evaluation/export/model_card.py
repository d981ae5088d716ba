"""The model card of an exported model: what it is, how well it does, how it was trained and whom to cite."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from protometry.evaluation.tables.markdown import code, interval, lines, number, printed_unit
from protometry.lightning_modules.contract import InterpretableModel
from protometry.run_folder.command_line.messages import counted

if TYPE_CHECKING:
    from protometry.evaluation.results.metrics_json import Result

ADDRESS = "hf://OWNER/NAME"  # until the model has one


def model_card(
    model: InterpretableModel, facts: Mapping[str, Any], training: Mapping[str, Any], data: str, result: Result | None
) -> str:
    """The text of ``README.md``; names of data, classes and networks stand in it as code.

    Args:
        model: that is exported.
        facts: the description of the exported model.
        training: what ``metrics.json`` says of it.
        data: name of the data set.
        result: of its evaluation, if there is one.
    """
    kind, (height, width) = type(model).__name__, facts["image_size"]
    named = (facts["model"]["init_args"].get("backbone") or {"name": "sketch"}).get("name")
    backbone = "of its own" if named is None else code(str(named))
    units = int(model.units().active.sum())
    header = [
        "---",
        "library_name: protometry",
        "pipeline_tag: image-classification",
        f"tags: [protometry, interpretability, {kind}]",
        "---",
    ]
    card = getattr(model, "card", None)  # a model of one's own may have none
    cited = f"[{card.paper}]({card.url})" if card and card.paper else ""
    source = f" ({cited})" if cited else ""
    return "\n".join(
        [
            *header,
            "",
            f"# {kind} on {code(data)}",
            "",
            f"An image classifier whose decisions can be looked at: a {kind}{source} with the backbone {backbone}, "
            f"{counted(units, model.units().kind)} and {len(facts['class_names'])} classes, trained with Protometry on "
            f"{code(data)} at {height}×{width} pixels.",
            "",
            "```python",
            "import protometry",
            "",
            f'explainer = protometry.PhotoExplainer("{ADDRESS}")  # or the path of this folder',
            'answer = explainer("photo.jpg")',
            "answer.prediction, answer.probability, answer.picture()",
            "```",
            "",
            f"Classes: {', '.join(map(code, facts['class_names']))}.",
            "",
            "## Results",
            "",
            *_results(result),
            "",
            "## Training",
            "",
            *_training(training),
            "",
            "## Cite",
            "",
            f"{cited or 'The paper of the model'}, for the model; and Protometry contributors, *Protometry: "
            "interpretable-by-design image models and the measurement of their explanations*, "
            f"version {facts['version'] or 'unknown'}, with the papers of the metrics that you report.",
            "",
        ]
    )


def _results(result: Result | None) -> list[str]:
    """The metrics of an evaluation with their 95 % intervals, or that there is none."""
    if result is None:
        return ["Exported without an evaluation."]
    rows = []
    for key, entry in result.metrics.items():
        bounds = interval(entry.ci95[0], entry.ci95[1], entry.unit)
        rows.append([key, printed_unit(entry.unit), number(entry.value, entry.unit), bounds, str(entry.n)])
    explained = f"; explained by {result.explainer}" if result.explainer else ""
    said = f"On the {result.split} split of {code(result.dataset)}, {code(result.checkpoint)}{explained}."
    return [said, "", *lines(["metric", "unit", "value", "95 %", "n"], rows)]


def _training(training: Mapping[str, Any]) -> list[str]:
    """Epochs of every phase, and the settings as JSON."""
    epochs = [f"{code(name)} {count}" for name, count in (training.get("epochs") or {}).items()]
    settings = {name: value for name, value in training.items() if name in ("model", "batch_size", "precision", "code")}
    if not training:
        return ["Exported from Python, without a record of the training."]
    phases = f"Epochs: {', '.join(epochs)}." if epochs else "The weights were trained elsewhere."
    return [phases, "", "```json", json.dumps(settings, indent=1, ensure_ascii=False, default=str), "```"]
