"""What a service takes from strangers."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class ServiceLimits:
    """Sizes, numbers and times.

    Args:
        megabytes: of a request; larger ones are answered with 413.
        megapixels: of a photo; larger ones are answered with 413. Reading one takes up to 10 bytes for each pixel.
        connections: requests answered at once; those above are answered with 503.
        batch: photos that the model sees at once. Above 1, numbers change by about 1e-6 of the largest.
        request_seconds: in which a request has to arrive, or its connection is ended.
        answer_seconds: in which it has to be answered, or it is answered with 504.

    Raises:
        ValueError: if one is not above 0.
    """

    megabytes: float = 10
    megapixels: float = 40
    connections: int = 32
    batch: int = 8
    request_seconds: float = 20
    answer_seconds: float = 60

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value <= 0:
                raise ValueError(f"Expected argument `{name}` to be above 0, but got {value}.")

    @property
    def bytes(self) -> int:
        """Of a request."""
        return int(self.megabytes * 1e6)

    @property
    def pixels(self) -> int:
        """Of a photo."""
        return int(self.megapixels * 1e6)
