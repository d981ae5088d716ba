"""The one error that lists everything that is wrong with a data set."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 5


def first_few(texts: Sequence[str], between: str = ", ") -> str:
    """The first of some texts in one line, and how many more there are.

    Example:
        >>> first_few("abcdefg"), first_few([])
        ('a, b, c, d, e and 2 more', 'nothing')
    """
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return (between.join(texts[:SHOWN]) or "nothing") + more


class Problems:
    """Collects everything that is wrong with a data set, to say it in one error.

    Example:
        >>> problems = Problems("toy data in /data", "Download it again.")
        >>> problems.wrong("a.txt is empty")
        >>> problems.raise_any()
        Traceback (most recent call last):
            ...
        ValueError: Expected toy data in /data to be complete and consistent, but got 1 problem:
          a.txt is empty.
        Download it again.
    """

    def __init__(self, what: str, remedy: str) -> None:
        self._what = what
        self._remedy = remedy
        self._texts: list[str] = []
        self._missing = False

    def wrong(self, text: str) -> None:
        """Note a problem."""
        self._texts.append(text)

    def missing(self, text: str) -> None:
        """Note a file that is not there; the error becomes a ``FileNotFoundError``."""
        self._missing = True
        self._texts.append(text)

    def raise_any(self) -> None:
        """Raise one error that counts the problems and shows the first five, if there are any.

        Raises:
            FileNotFoundError: if a file is missing.
            ValueError: if everything is there but something is wrong.
        """
        if not self._texts:
            return
        count = len(self._texts)
        listed = "".join(f"\n  {text}{'' if text.endswith(('.', '?')) else '.'}" for text in self._texts[:SHOWN])
        more = f"\n  ... and {count - SHOWN} more" if count > SHOWN else ""
        text = (
            f"Expected {self._what} to be complete and consistent, but got {count} problem{'s' * (count > 1)}:"
            f"{listed}{more}\n{self._remedy}"
        )
        raise FileNotFoundError(text) if self._missing else ValueError(text)
