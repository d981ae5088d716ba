"""What workers of a loader do first."""

import torch

from protometry.datamodules.dataset import Mapped
from protometry.datamodules.workers import WorkerLoader


def test_workers_begin_as_asked():
    loader = WorkerLoader(Mapped(lambda _: torch.initial_seed(), [0]), num_workers=1, worker_init_fn=torch.manual_seed)
    assert [batch.tolist() for batch in loader] == [[0]]
