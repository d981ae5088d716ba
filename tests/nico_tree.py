"""Small trees in the layout of NICO: uniform photos in the colour of their context."""

from pathlib import Path

from PIL import Image

COLORS = {"on grass": (40, 150, 40), "in snow": (240, 240, 250), "at sea": (40, 60, 200), "autumn": (200, 90, 30)}
CLASSES = ("cat", "polar bear", "dog")


def make_nico(
    root: Path, per_context: int = 6, classes: tuple[str, ...] = CLASSES, contexts: tuple[str, ...] = tuple(COLORS)
) -> Path:
    """Uniform photos; image i of a context is i grey levels darker than the context's colour."""
    for kind in classes:
        for context in contexts:
            folder = root / kind / context
            folder.mkdir(parents=True)
            for i in range(per_context):
                color = tuple(max(0, channel - i) for channel in COLORS[context])
                Image.new("RGB", (40, 30), color).save(folder / f"photo {i}.jpg")
    return root
