"""Evaluations of checkpoints, tables and comparisons of their results, and explained images.

``python evaluate.py run --ckpt_path runs/quickstart/checkpoints/last.ckpt``
``python evaluate.py table runs/cub200/* --published quanproto``
``python evaluate.py compare runs/first runs/second``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from jsonargparse import auto_cli

from protometry.evaluation.hardware import Hardware
from protometry.evaluation.limits import Limits
from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.first_look import FirstLook, look_at
from protometry.run_folder.command_line.parser import StrictParser
from protometry.run_folder.command_line.user_path import user_path

if TYPE_CHECKING:  # each command imports its own modules, which help and refusals do not need
    from protometry.callbacks.evaluation.funnybirds.interface import Interface
    from protometry.evaluation.request import EvaluatedSplit
    from protometry.explanations import Explainer
    from protometry.metrics.functional import Variant


def run(  # noqa: PLR0913 - every argument is a flag
    ckpt_path: str,
    suite: str = "quanproto",
    split: EvaluatedSplit = "test",
    limit: int | None = None,
    seed: int = 0,
    explainer: Explainer | None = None,
    variant: Variant = "paper",
    top_k: int = 5,
    memory_budget: float | None = None,
    attacked: int | None = 1000,
    foreign: str | None = None,
    overwrite: bool = False,
    trainer: Hardware = Hardware(),
    data_root: str | None = None,
    inference: str | None = None,
    allow_classes: str | None = None,
    data: str | None = None,
    interface: Interface | None = None,
    report: bool = True,
    scores: Literal["csv"] | None = None,
    maps: bool = False,
) -> dict[str, Any]:
    """Evaluate one checkpoint; its run folder provides everything else.

    Args:
        ckpt_path: the checkpoint file.
        suite: "quanproto", "all", metric families or single keys, separated by commas.
        split: "test" or "val".
        limit: number of images, balanced over classes and drawn by hashes of sample ids; all by default.
        seed: seed of perturbations.
        explainer: the source of saliency, such as ``GradCAM``, whose options are listed by ``--explainer.help
            GradCAM``; by default PRP, AttnLRP for models with attention, or upsampled maps, whichever fits.
        variant: "paper", or "quanproto" as in the published tables of Schlinge et al. (2025).
        top_k: number of units evaluated per image.
        memory_budget: GiB for one forward pass, which sets its number of images; 0.68 on a CPU by default, else 8.
        attacked: number of images, drawn by class, for the misalignment attack of the suite alignment and for deletion,
            insertion, cell_alone and gradient_inside of the suite sanity; null for all.
        foreign: a yaml file as in configs/data, whose nearest patches replace prototypes in sanity/exchanged_accuracy.
        overwrite: replace an earlier result of the same evaluation.
        trainer: hardware to run on.
        data_root: the current place of the data, if they have moved since training; with ``--data``, their root.
        inference: of a ProtoTree: "distributed", "sample_max" or "greedy"; by default as in the run.
        allow_classes: packages, separated by commas, whose classes the checkpoint may name besides this project's;
            importing one runs its code.
        data: evaluate on other data than the run's: a yaml file as in configs/data. Classes are matched by name, and
            images of classes that the model does not know are left out. A folder without parts is evaluated as a whole.
        interface: how the suite funnybirds derives parts: "ssm" (the default), summed similarity maps; "bb", boxes;
            "bb_reference" and "bb_corrected", boxes with slips of the released code; "attribution", ``--explainer``.
        report: also write pages, if the suite has explanations.
        scores: also write the score of every unit on every image, as "csv".
        maps: also write the maps and boxes of all units on all images, as arrays with an index.
    """
    from protometry.callbacks import Interpretability
    from protometry.evaluation.evaluate import evaluate
    from protometry.evaluation.request import Request
    from protometry.evaluation.trained_model import TrainedModel

    how: dict[str, Any] = {"explainer": explainer, "top_k": top_k, "variant": variant, "seed": seed}
    how |= {"memory_budget": memory_budget, "attacked": attacked, "interface": interface}
    engine = Interpretability(suite, **how)
    trained = TrainedModel.of_flags(ckpt_path, data_root, allow_classes)
    request = Request(trained, engine, split, limit, overwrite, inference, None, report, bool(scores), maps)
    return evaluate(request, trainer, data=user_path(data) if data else None, foreign=foreign)[0]


def report(  # noqa: PLR0913 - every argument is a flag
    ckpt_path: str,
    evaluation: str | None = None,
    explainer: Explainer | None = None,
    output: str | None = None,
    limits: Limits = Limits(),
    size: int = 144,
    data_root: str | None = None,
    allow_classes: str | None = None,
) -> None:
    """Write the pages of an evaluation: explained images and units, classes, errors, metrics.

    Args:
        ckpt_path: the checkpoint file.
        evaluation: folder of the evaluation of this checkpoint; by default the newest of the whole test split
            without --explainer.
        explainer: as in ``run``.
        output: folder of the pages; ``report`` in the folder of the evaluation by default.
        limits: maximum number of pages of each kind.
        size: longer side of the heat maps in pixels, at most 256.
        data_root: as in ``run``.
        allow_classes: as in ``run``.
    """
    from protometry.evaluation.pages import build_report
    from protometry.evaluation.trained_model import TrainedModel

    trained = TrainedModel.of_flags(ckpt_path, data_root, allow_classes)
    folder = user_path(evaluation) if evaluation else trained.chosen_evaluation()
    explained, files = trained.evaluated(folder, explainer, size)
    print(f"report: {build_report(explained, files, user_path(output) if output else folder / 'report', limits)}")


def table(
    runs: list[str],
    published: str | None = None,
    across: list[str] = [],  # noqa: B006  (the command line shows it as the default)
    format: Literal["markdown", "csv", "latex", "json"] = "markdown",
    intervals: bool = False,
) -> None:
    """Print the mean ± standard deviation over folds and seeds of every metric, next to a paper's numbers.

    Args:
        runs: run folders, folders of runs, folders of evaluations, or metrics.json files. A run folder stands for its
            newest evaluation of the whole test split without --explainer, with the best checkpoint if there is one.
        published: short name of a paper whose numbers for the same data set and model are added; or one of its tables,
            such as quanproto/2, to be printed with the runs in it. Studies appear in the tables of hive.
        across: conditions in which averaged runs may differ, by their printed names, such as code.
        format: of the text; "csv" and "json" have one number per cell, at full precision in the units of metrics.json;
            "latex" needs the package booktabs.
        intervals: print deviations or 95 % intervals and n in a paper's table, too; other tables always have them.
    """
    if published is None or "/" not in published:
        from protometry.evaluation.results.runs import collect
        from protometry.evaluation.tables.run_tables import text_of

        print(text_of(collect(runs), format, published, across))
    else:
        from protometry.evaluation.published.paper_tables import paper_table
        from protometry.evaluation.tables.paper_rows import sections_of
        from protometry.evaluation.tables.paper_text import text_of_paper

        asked = paper_table(published)
        print(text_of_paper(asked, sections_of(asked, runs, across), format, intervals))


def figure(
    runs: list[str],
    output: str,
    metric: str | None = None,
    published: str | None = None,
) -> None:
    """Draw metrics of runs as bars with intervals, next to a paper's numbers.

    Args:
        runs: as in ``table``.
        output: a file that ends in .png, .pdf or .svg; where another one lies, the new one gets a number.
        metric: keys, separated by commas; of a paper's table, headings of columns, all by default.
        published: a paper's table whose numbers are drawn, too, such as quanproto/2.
    """
    from protometry.evaluation.pictures.figures import check_output, draw, save
    from protometry.evaluation.published.paper_tables import of_headings, paper_table
    from protometry.evaluation.results.runs import collect
    from protometry.evaluation.tables.paper_rows import of_keys, sections_of

    file, names = user_path(output), metric.split(",") if metric else []
    check_output(file)
    asked = of_headings(paper_table(published), names) if published else of_keys(names, collect(runs))
    print(f"figure: {save(draw(asked, sections_of(asked, runs)), file)}")


def compare(  # noqa: PLR0913 - every argument is a flag
    run: str,
    other: str,
    across: list[str] = [],  # noqa: B006  (the command line shows it as the default)
    common: bool = False,
    draws: int = 10_000,
    seed: int = 0,
    report: bool = True,
    images: int = 40,
    output: str | None = None,
    explainer: Explainer | None = None,
    data_root: str | None = None,
    allow_classes: str | None = None,
) -> None:
    """Print the paired comparison of two runs on the same images, and write pages with both side by side.

    Args:
        run: as one of the runs of ``table``.
        other: the run to compare with it.
        across: conditions in which the runs may differ although their numbers then mean different things.
        common: compare on the common images, if the two sets differ.
        draws: of the test.
        seed: of these draws.
        report: also write pages, for which both checkpoints are loaded and applied to the images again.
        images: maximum number with a page; those on which the models disagree come first.
        output: folder of the pages; by default a folder in ``compared`` of the first run, named after the other.
        explainer: of both, as in ``run``.
        data_root: as in ``run``.
        allow_classes: as in ``run``.
    """
    from protometry.evaluation.pages import build_comparison, comparison_folder
    from protometry.evaluation.tables import paired_comparison
    from protometry.evaluation.trained_model import TrainedModel

    limits = Limits(images=images)
    compared = paired_comparison.compare(run, other, across, common, draws, seed)
    if not report:
        return
    models = [TrainedModel.of_result(result, data_root, allow_classes) for result in compared.results]
    try:
        evaluated = [m.evaluated(r.path.parent, explainer) for m, r in zip(models, compared.results, strict=True)]
    except (FileNotFoundError, ValueError) as error:
        if explainer or data_root:
            raise
        print(f"\nno pages: {error}")
        return
    folder = user_path(output) if output else comparison_folder(*compared.results)
    print(f"\npages: {build_comparison(evaluated, compared, folder, limits)}")


def predict(  # noqa: PLR0913 - every argument is a flag
    ckpt_path: str,
    image: list[str],
    crop: list[int],
    split: EvaluatedSplit | None = None,
    output: str | None = None,
    trainer: Hardware = Hardware(),
    data_root: str | None = None,
    inference: str | None = None,
    allow_classes: str | None = None,
    max_pixels: int | None = None,
) -> None:
    """Write a table with the prediction for every image, its probability, and the three most probable classes.

    Args:
        ckpt_path: the checkpoint file, or the folder of an exported model.
        image: image files, or folders of images, transformed as in ``explain``; subfolders may be named after classes.
        crop: as in ``explain``.
        split: of the data of the run, if no image is named: "test" (the default) or "val".
        output: the table; ``predictions.csv`` in the run folder by default. An existing file is kept; the new one gets
            a number.
        trainer: hardware to run on.
        data_root: as in ``run``.
        inference: as in ``run``.
        allow_classes: as in ``run``.
        max_pixels: of a photo, 160 million by default; larger ones are not read.
    """
    from protometry.evaluation import predict
    from protometry.evaluation.export.exported_model import open_model

    _refuse_lost(crop, image)
    trained = open_model(ckpt_path, data_root, allow_classes)
    table = user_path(output) if output else None
    predict.predict(trained, trainer, image, crop or None, split, inference, table, max_pixels)


def explain(  # noqa: PLR0913 - every argument is a flag
    ckpt_path: str,
    image: list[str],
    sample: list[str],
    crop: list[int],
    split: EvaluatedSplit = "test",
    explainer: Explainer | None = None,
    output: str | None = None,
    data_root: str | None = None,
    allow_classes: str | None = None,
    max_pixels: int | None = None,
) -> None:
    """Explain images: a picture, a page and a JSON file for each, with the contributions of units to the logit.

    Args:
        ckpt_path: the checkpoint file, or the folder of an exported model.
        image: image files, and folders of them, seen through the evaluation transform of the data; one that cannot be
            read does not keep the others from being explained.
        sample: ids of images of the data.
        crop: x, y, width and height in pixels, to which a single image file is cropped first, for models trained on
            crops.
        split: the split of these ids.
        explainer: as in ``run``.
        output: folder of what is written; by default ``explained`` in the run folder, or beside the exported model.
        data_root: as in ``run``.
        allow_classes: as in ``run``.
        max_pixels: as in ``predict``.
    """
    from protometry.datamodules.photos.photo_files import read_photos
    from protometry.evaluation.explained.scan import samples_of
    from protometry.evaluation.export.exported_model import open_model
    from protometry.evaluation.pages import write_explained

    if not image and not sample:
        raise ValueError("Expected argument `image` or `sample` to name an image, but got none.")
    _refuse_lost(crop, image, *sample)
    trained = open_model(ckpt_path, data_root, allow_classes)
    explained = trained.explained(explainer)
    samples: list[Any] = samples_of(explained.datamodule.dataset(split), sample) if sample else []
    photos, refuse_unread = read_photos(image, explained.datamodule, crop or None, max_pixels)
    if samples := samples + photos:
        print("\n".join(write_explained(explained, samples, user_path(output or trained.run_folder / "explained"))))
    refuse_unread()


def _refuse_lost(crop: list[int], image: list[str], *sample: str) -> None:
    """Refuse a crop of nothing, and empty names, as of unset variables: as a path they are the current folder."""
    if "" in (*image, *sample):
        raise ValueError("Expected arguments `image` and `sample` to name images, but got ''.")
    if crop and (sample or len(image) != 1 or user_path(image[0]).is_dir()):
        raise ValueError("Expected a single `image` with `crop`, but got none, several, or a `sample`.")


def metrics(
    ckpt_path: str,
    suite: str = "all",
    split: EvaluatedSplit = "test",
    explainer: Explainer | None = None,
    data_root: str | None = None,
    allow_classes: str | None = None,
) -> None:
    """List the metrics that apply to a model on its data, and why others do not.

    Args:
        ckpt_path: the checkpoint file.
        suite: as in ``run``.
        split: "test" or "val".
        explainer: as in ``run``.
        data_root: as in ``run``.
        allow_classes: as in ``run``.
    """
    from protometry.callbacks import Interpretability
    from protometry.evaluation.measure import applicable
    from protometry.evaluation.tables.summary import by_reason, listed
    from protometry.evaluation.trained_model import TrainedModel

    trained = TrainedModel.of_flags(ckpt_path, data_root, allow_classes)
    keys, skipped = applicable(trained, Interpretability(suite, explainer=explainer), split)
    print("\n".join([*listed(keys), *by_reason(skipped)]))


class CommandLine(StrictParser):
    """``table``, ``figure`` and ``compare`` take runs without flags, ``predict`` and ``explain`` several images."""

    def add_function_arguments(self, function: Any, *args: Any, **options: Any) -> list[str]:
        """Add the arguments of a command."""
        if function in (table, figure):
            what = "run folders, folders of runs or evaluations, metrics.json files, or folders of studies"
            self.add_argument("runs", nargs="+", type=str, help=what)
            options["skip"] = {"runs"}
        several = {
            predict: {"image": "image files, or folders of images"},
            explain: {"image": "image files", "sample": "ids of images of the data"},
        }
        for name, what in several.get(function, {}).items():
            self.add_argument(f"--{name}", nargs="+", type=str, default=[], help=what)
            options["skip"] = {*options.get("skip", ()), name}
        if function in several:
            what = "x, y, width and height in pixels, to which a single image is cropped first"
            self.add_argument("--crop", nargs=4, type=int, default=[], metavar=("X", "Y", "WIDTH", "HEIGHT"), help=what)
            options["skip"].add("crop")
        options["as_positional"] = function in (table, compare)
        return super().add_function_arguments(function, *args, **options)


class FirstCommandLine(CommandLine, FirstLook):
    """The same, before explainers and metrics are imported."""


COMMANDS: Any = {
    command.__name__: command for command in (run, metrics, table, figure, compare, predict, explain, report)
}


def main(args: list[str] | None = None) -> None:
    """Run the command line, from the shell or in process."""
    auto_cli(COMMANDS, args=args, as_positional=False, parser_class=CommandLine)


if __name__ == "__main__":
    look_at(COMMANDS, FirstCommandLine)
    from_shell(main)
