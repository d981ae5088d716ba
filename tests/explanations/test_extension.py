"""The explainer of ``docs/add_an_explainer.md`` works as printed."""

import torch

from protometry.callbacks import Interpretability
from protometry.explanations import Explainer, Targets
from tests.engine_runs import run_engine
from tests.lightning_modules.registry import MODELS, tiny_birds
from tests.pages import run_page


def cell_only():
    return run_page("add_an_explainer.md")["CellOnly"]()


def test_the_page_explains():
    explainer, model = cell_only(), MODELS["ProtoPNet"](num_classes=8, image_size=(32, 32)).eval()
    assert isinstance(explainer, Explainer)
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    maps = explainer.attribute(model, images, Targets("unit", torch.tensor([[3], [5]])))
    assert maps.shape == (2, 1, 32, 32)
    assert (maps.sum((1, 2, 3)) == 64).all()  # one of 4 x 4 cells
    assert MODELS["Classifier"](num_classes=8, image_size=(32, 32)).units().pool == "mean"
    assert explainer.supports(MODELS["Classifier"](num_classes=8, image_size=(32, 32))) is not None


def test_the_engine_takes_it():
    model = MODELS["ProtoPNet"](num_classes=8, image_size=(32, 32)).eval()
    engine = Interpretability(["localisation"], explainer=cell_only())
    evaluation = run_engine(engine, model, tiny_birds(test_size=4))
    assert evaluation.explainer == "cell_only"
    assert evaluation.metrics["localisation/energy"]["n"] == 4
