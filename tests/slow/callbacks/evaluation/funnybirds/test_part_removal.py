"""The FunnyBirds protocol: planted birds whose scores are known, a slow loop by the definition, and exactness."""

import pytest

from protometry.callbacks import Interpretability
from protometry.explanations import GradCAM
from tests.callbacks.evaluation.funnybirds.test_part_removal import share, small
from tests.engine_runs import run_engine
from tests.lightning_modules.registry import tiny_birds


def rounded(evaluation):
    return {key: (round(entry["value"], 12), entry["n"]) for key, entry in evaluation.metrics.items()}


@pytest.mark.parametrize(
    ("interface", "explainer"), [("ssm", None), ("bb_reference", None), ("attribution", GradCAM())]
)
def test_batch_sizes_and_processes_change_nothing(interface, explainer, ddp_pool):
    model = small()
    engine = Interpretability(["funnybirds"], interface=interface, explainer=explainer)
    one, other = (run_engine(engine, model, tiny_birds(), batch_size=n) for n in (8, 3))
    for result in (other, *ddp_pool.run(share, model, interface, explainer)):
        assert repr(rounded(result)) == repr(rounded(one))
        assert repr(sorted(result.images.items())) == repr(sorted(one.images.items()))
        assert result.protocol == one.protocol
