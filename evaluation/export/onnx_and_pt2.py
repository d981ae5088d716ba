"""Trained models as programs that run without this package: those of ``torch.export``, and ONNX."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from protometry.lightning_modules.contract import InterpretableModel, ModelOutput
from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.command_line.messages import requires

ProgramFormat = Literal["pt2", "onnx"]
OUTPUTS = ("logits", "probabilities", "scores", "maps")


class Program(nn.Module):
    """A model whose outputs are a dictionary of plain tensors, which can be loaded without our classes."""

    def __init__(self, model: InterpretableModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """``OUTPUTS`` by name, as in :class:`.ModelOutput`, for RGB images ``(B, 3, H, W)`` in [0, 1]."""
        output: ModelOutput = self.model(images)
        outputs = (output.logits, self.model.probabilities(output.logits), output.scores, output.maps)
        return dict(zip(OUTPUTS, outputs, strict=True))


def write_program(model: Any, file: Path, kind: ProgramFormat) -> None:
    """Write a model as a program for any number of images at once.

    Raises:
        FileExistsError: if the file is there already.
        ValueError: if ONNX is not installed.
    """
    if file.exists():
        raise FileExistsError(f"Expected {file} not to be there yet, but it is. Move it away, or name another folder.")
    images = torch.rand(2, 3, *model.image_size)
    exported = torch.export.export(Program(model), (images,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    content = io.BytesIO()
    if kind == "pt2":
        with warnings.catch_warnings():  # about weights on other devices
            warnings.filterwarnings("ignore", "No complete tensor found")
            torch.export.save(exported, content)
    else:
        try:
            import onnxscript  # noqa: F401
        except ImportError as error:
            raise ValueError(requires("onnx", "ONNX")) from error
        names: dict[str, Any] = {"input_names": ["images"], "output_names": list(OUTPUTS)}
        with warnings.catch_warnings():  # about exponentials that overflow in its sigmoid, whose limit it takes
            warnings.filterwarnings("ignore", category=RuntimeWarning, module="onnx")
            program: Any = torch.onnx.export(
                exported, (images,), dynamo=True, external_data=False, verbose=False, **names
            )
        program.save(content)
    write_atomic(file, content.getvalue())
