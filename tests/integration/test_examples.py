"""The scripts and the notebook in ``examples/`` run as they are, each in an empty folder, and say what they promise."""

from tests.tiny_runs import ROOT

SAYS = {  # the first words of a line
    "any_network": "peak on the bird",
    "correct_concepts": "8 of 20 concepts corrected",
    "human_study": "prototypes - photos",
    "own_data": "['disc', 'square'] {'train': 16, 'val': 4, 'test': 20}",
    "own_backbone": "squares: maps (50, 6, 8), cell (1, 2) sees columns 32 to 47 and rows 16 to 31",
    "own_metric": "own/score_margin",
    "own_model": "continuity/plc",
    "planted_words": "34 words in words.npz",
}
ARGUMENTS = {"own_metric": ["CHECKPOINT"], "human_study": ["CHECKPOINT", "out"]}
ARGUMENTS["planted_words"] = [str(ROOT / "configs/experiment/concepts/sketch_birds_words.txt"), "words.npz"]


def test_all_scripts_are_run():
    assert {file.stem for file in (ROOT / "examples").glob("*.py")} == set(SAYS)
