"""Names of backbones, and what one of them gives: ``protometry backbones "timm/*vit*reg4*"``."""

from __future__ import annotations

from typing import Any, get_args

from protometry.lightning_modules.backbones.backbone import BackboneName, build_backbone
from protometry.lightning_modules.backbones.libraries import names_like
from protometry.lightning_modules.backbones.sections import backbone_sections
from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.parser import StrictParser


def main(args: list[str] | None = None) -> None:
    """List the names for ``backbone.name`` that match a pattern, or say what one network gives.

    Raises:
        ValueError: if nothing matches, or the network has no grid for images of this size.
    """
    parser = StrictParser(prog="protometry backbones", description="List networks, or say what one of them gives.")
    parser.add_argument("pattern", type=str, nargs="?", default="", help="such as 'timm/*vit*reg4*', or one name")
    parser.add_argument("--image_size", type=int, default=224, help="side of the images in pixels, for one name")
    config = parser.parse_args(args)
    pattern, image_size = config.pattern, (config.image_size, config.image_size)
    names = get_args(BackboneName)
    if not pattern:
        print("\n".join(names))
        print(f"\nand {len(names_like('*')):,} of torchvision and timm: protometry backbones 'torchvision/*'")
    elif any(mark in pattern for mark in "*?["):
        found = names_like(pattern)
        if not found:
            raise ValueError(f"Expected argument `pattern` to match a name, but got {pattern!r}. Try '*{pattern}*'.")
        print("\n".join(found))
    else:
        _describe(pattern, image_size)


def _describe(name: str, image_size: tuple[int, int]) -> None:
    backbone = build_backbone({"name": name}, image_size)
    geometry = backbone.geometry(image_size)
    rows, cols = geometry.grid
    x0, y0, x1, y1 = geometry.cell_box(rows // 2, cols // 2, "receptive_field")
    everything = "the whole image" if geometry.sees_everything() else f"{x1 - x0 + 1} × {y1 - y0 + 1} pixels"
    sections = backbone_sections(backbone)
    lines: dict[str, Any] = {
        "features": f"{backbone.out_channels} channels, {rows} × {cols} cells of {geometry.lines[0][1]:g} pixels at "
        f"{image_size[0]} × {image_size[1]}",
        "a cell in the middle sees": everything,
        **({"cells": " ".join(caveats)} if (caveats := geometry.caveats()) else {}),
        "parameters": f"{sum(p.numel() for p in backbone.parameters()):,}",
        "sections": ", ".join(f"{key} {sum(p.numel() for p in value):,}" for key, value in sections.items()),
        "normalization": f"mean {_rounded(backbone.normalize.mean)}, std {_rounded(backbone.normalize.std)}",
    }
    width = max(map(len, lines))
    print("\n".join(f"{key:<{width}}  {value}" for key, value in lines.items()))


def _rounded(values: Any) -> list[float]:
    return [round(value, 3) for value in values.flatten().tolist()]


if __name__ == "__main__":
    from_shell(main)
