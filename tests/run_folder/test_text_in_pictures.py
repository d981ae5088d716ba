"""Text in pictures has its letters, and its width."""

import warnings
from pathlib import Path

import matplotlib
import pytest

from protometry.run_folder import text_in_pictures
from protometry.run_folder.text_in_pictures import cut_text, font_of, width_of

BOX = "\ufdd0"  # no letter: what a font shows in place of one that it lacks


def pixels(letter):
    return bytes(font_of(letter, 20).getmask(letter))


@pytest.mark.parametrize("width", [0, 20, 60, 90, 500])
def test_text_is_cut_to_its_width_between_words(width):
    text = "a name of some length"
    cut = cut_text(text, 12, width)
    whole = width_of(text, 12) <= width
    assert cut == text if whole else cut.endswith("…") and f"{text} ".startswith((f"{cut[:-1]} ", "a"[: len(cut) - 1]))
    assert width_of(cut, 12) <= max(width, width_of("…", 12))


def test_a_word_is_cut_where_it_must_be():
    assert cut_text("Donaudampfschifffahrt", 12, 60) == "Donaud…"
    assert cut_text("two\nlines", 12, 500) == "two lines"


@pytest.mark.parametrize("letter", "äöüßéñøž×→ЖωΩش")
def test_letters_of_many_scripts_are_shown(letter):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pixels(letter) != bytes(font_of("", 20).getmask(BOX))


def test_another_font_of_the_machine_is_used_for_what_the_first_lacks(monkeypatch, tmp_path):
    (tmp_path / "damaged.ttf").write_bytes(b"no font")
    stix = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "STIXGeneral.ttf")
    dejavu = next(text_in_pictures._fonts())
    letters = map(chr, sorted(text_in_pictures._letters_of(stix) - text_in_pictures._letters_of(dejavu)))
    only = next(letter for letter in letters if letter.isprintable())
    monkeypatch.setattr(text_in_pictures, "_system_fonts", lambda: [str(tmp_path / "damaged.ttf"), stix])
    assert font_of(only, 20).path == stix
    assert font_of("a", 20).path.endswith("DejaVuSans.ttf")


def test_letters_that_no_font_has_are_named_once(monkeypatch):
    monkeypatch.setattr(text_in_pictures, "_system_fonts", lambda: [])
    with pytest.warns(UserWarning, match="No font of this machine has 鳥 鸟, and pictures show boxes"):
        assert width_of("鸟 and 鳥", 12) > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        font_of("鳥 and 鸟", 14)
