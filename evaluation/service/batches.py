"""Photos that arrive while a model is busy are explained together, in its next forward pass."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from protometry.evaluation.pages.answer import Answer
from protometry.evaluation.photo_explainer import PhotoExplainer

Waiting = tuple[Mapping[str, Any], "asyncio.Future[Answer]"]


class Batches:
    """Explains photos of many requests, several at once; nobody waits for a batch to fill.

    Args:
        explainer: of the photos.
        worker: where it runs; of one thread, since each thread that runs a model keeps threads and memory of its own.
        most: photos in a batch.
    """

    def __init__(self, explainer: PhotoExplainer, worker: Executor, most: int) -> None:
        self.explainer, self.worker, self.most = explainer, worker, most
        self._waiting: list[Waiting] = []
        self._running: asyncio.Task[None] | None = None

    async def explain(self, sample: Mapping[str, Any]) -> Answer:
        """The answer for one photo, once a batch with it is explained.

        Raises:
            ValueError: if the explanation of this photo fails, whatever becomes of the others.
        """
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((sample, answer))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[: self.most], self._waiting[self.most :]
            if wanted := [each for each in batch if not each[1].done()]:  # others were given up meanwhile
                await self._answer(wanted)

    async def _answer(self, batch: Sequence[Waiting]) -> None:
        samples = [sample for sample, _ in batch]
        try:
            answers = await asyncio.get_running_loop().run_in_executor(self.worker, self.explainer.explain, samples)
        except Exception as error:
            if len(batch) > 1:  # one photo must not fail the others
                for each in batch:
                    await self._answer([each])
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for (_, waiting), answer in zip(batch, answers, strict=True):
            if not waiting.done():
                waiting.set_result(answer)
