"""Files of a large network."""

from tests.lightning_modules.backbones.test_weights import assert_classifier_is_left_out


def test_path_of_a_state_dict_with_a_classifier(tmp_path):
    ends = ["classifier.0.bias", "classifier.2.weight"]
    assert_classifier_is_left_out("convnext_tiny", ends, tmp_path / "whole.pth")
