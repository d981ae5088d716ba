"""The content of files of the authors' code, and how its names and settings map to our models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Contents:
    """The content of a file: tensors by our names, where there is one, and everything else it holds."""

    file: Path
    tensors: dict[str, Tensor]
    settings: Mapping[str, Any]


def as_they_are(model: Any, contents: Contents, form: Format) -> dict[str, Tensor]:
    """The tensors of a format that only needs other names."""
    return contents.tensors


@dataclass(frozen=True)
class Format:
    """How the released code of a paper saves the weights of its model.

    Args:
        names: prefixes of its names and of ours.
        arguments: arguments of our model and the values that match the authors' code.
        sizes: arguments of our model that determine shapes.
        refused: prefixes of names that our model does not support, with a description.
        implied: attributes of the authors' model that affect the logits but are missing from state dicts, with the
            value our model implements; a file that has them must agree.
        whole: file of the whole module that the code saves next to the state dict, if any.
        settings: an expression for the required content besides the state dict of ``model``.
        adapt: converts the tensors if other names are not enough.
    """

    code: str
    names: Mapping[str, str]
    arguments: Mapping[str, tuple[Any, ...]]
    sizes: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    implied: Mapping[str, Any] = field(default_factory=dict)
    whole: str | None = None
    settings: str = "{}"
    adapt: Callable[[Any, Contents, Format], dict[str, Tensor]] = as_they_are

    def ours(self, name: str) -> str:
        """Our name for one of theirs; the same if there is none."""
        begin = next((begin for begin in self.names if name.startswith(begin)), "")
        return self.names.get(begin, "") + name.removeprefix(begin)

    def theirs(self, name: str) -> str:
        """Their name for one of ours; the same if there is none."""
        begin = next((begin for begin, own in self.names.items() if name.startswith(own)), None)
        return name if begin is None else begin + name.removeprefix(self.names[begin])

    def lines(self, file: Path) -> str:
        """Three statements that write a readable file, to be run where the authors' code can be imported."""
        return "; ".join(
            (
                f'model = torch.load("{self.whole or file.name}", map_location="cpu")',
                f"settings = {self.settings}",
                'torch.save({"model_state_dict": model.state_dict(), **settings}, "released.pth")',
            )
        )
