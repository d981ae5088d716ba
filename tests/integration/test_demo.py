"""The trained model in the package."""

from protometry.evaluation.demo import RUN
from protometry.lightning_modules import load_model


def test_the_trained_model_is_of_this_code():
    model = load_model(RUN / "checkpoints/last.ckpt")
    assert (type(model).__name__, model.num_classes) == ("ProtoPNet", 20)
