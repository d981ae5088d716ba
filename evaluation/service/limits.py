"""How large and how many requests the service accepts, and how long they may take."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class ServiceLimits:
    """Limits of the service.

    Args:
        megabytes: of a request; larger ones are answered with 413.
        megapixels: of a photo; larger ones are answered with 413. Reading one takes up to 10 bytes for each pixel.
        connections: requests answered at once; those above are answered with 503.
        batch: photos that the model sees at once. Above 1, numbers change by about 1e-6 of the largest.
        request_seconds: time for a request to arrive, after which its connection is closed.
        answer_seconds: time to answer it, after which the answer is 504.

    Raises:
        ValueError: if one is not above 0 and finite.
    """

    megabytes: float = 10
    megapixels: float = 40
    connections: int = 32
    batch: int = 8
    request_seconds: float = 20
    answer_seconds: float = 60

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < math.inf:
                raise ValueError(f"Expected argument `{name}` to be above 0 and finite, but got {value}.")

    @property
    def bytes(self) -> int:
        """Bytes of a request."""
        return int(self.megabytes * 1e6)

    @property
    def pixels(self) -> int:
        """Pixels of a photo."""
        return int(self.megapixels * 1e6)
