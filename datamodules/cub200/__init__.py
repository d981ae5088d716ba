"""CUB-200-2011 (Wah et al. 2011): 200 bird species with boxes, 15 part points, attributes and optional masks."""

from protometry.datamodules.cub200.data_module import Cub200
from protometry.datamodules.cub200.dataset import Cub200Dataset

__all__ = ["Cub200", "Cub200Dataset"]
