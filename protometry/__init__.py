"""Image models whose decisions consist of parts a person can look at, and metrics of their explanations.

::

    import protometry
    from protometry.lightning_modules import ProtoPNet

    model = protometry.load_model("runs/quickstart/checkpoints/last.ckpt")

The folders of this package are links to those at the top of the repository; a wheel contains the folders themselves.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protometry.datamodules.load import load_datamodule
    from protometry.evaluation.demo import demo
    from protometry.evaluation.explained.explained_figure import explain
    from protometry.evaluation.export.export import export
    from protometry.evaluation.photo_explainer import PhotoExplainer
    from protometry.evaluation.tables.paired_comparison import compare_evaluations as compare
    from protometry.lightning_modules.bases.load import load_model
    from protometry.scripts.evaluate import run as evaluate

__all__ = ["PhotoExplainer", "compare", "demo", "evaluate", "explain", "export", "load_datamodule", "load_model"]

_PLACES = {
    "PhotoExplainer": ("protometry.evaluation.photo_explainer", "PhotoExplainer"),
    "compare": ("protometry.evaluation.tables.paired_comparison", "compare_evaluations"),
    "demo": ("protometry.evaluation.demo", "demo"),
    "evaluate": ("protometry.scripts.evaluate", "run"),
    "explain": ("protometry.evaluation.explained.explained_figure", "explain"),
    "export": ("protometry.evaluation.export.export", "export"),
    "load_datamodule": ("protometry.datamodules.load", "load_datamodule"),
    "load_model": ("protometry.lightning_modules.bases.load", "load_model"),
}


def __getattr__(name: str) -> Any:
    """What is imported when it is used: PyTorch takes seconds to import, and command lines answer sooner."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, function = _PLACES[name]
    return getattr(import_module(module), function)


def __dir__() -> list[str]:
    return __all__
