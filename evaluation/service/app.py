"""The routes of the service: a page to drop a photo on, and JSON for programs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from protometry.evaluation.photo_explainer import PhotoExplainer
from protometry.evaluation.service.batches import Batches
from protometry.evaluation.service.limits import ServiceLimits
from protometry.evaluation.service.middleware import HEALTH, Middleware, Refusal, error_response
from protometry.evaluation.service.uploads import crop_of, photo_of, unreadable

HERE = Path(__file__).parent


def make_app(model: str | Path, limits: ServiceLimits, names: Collection[str] = (), **options: Any) -> Middleware:
    """The service of one model, at this machine and hosts of these names.

    Args:
        model: as in :class:`.PhotoExplainer`.
        limits: of requests, photos and times.
        names: of hosts under which it may be reached besides this machine's; ``*`` for any.
        options: of :class:`.PhotoExplainer`.
    """
    explainer = PhotoExplainer(model, max_pixels=limits.pixels, **options)
    contents = {
        "/": HTMLResponse((HERE / "page.html").read_text("utf-8")),
        "/model": JSONResponse(explainer.description()),
        "/openapi.json": JSONResponse(_openapi(limits)),
        HEALTH: JSONResponse({"status": "ok"}),
    }
    routes = [Route(path, lambda _, answer=answer: answer) for path, answer in contents.items()]
    explain = Route("/explain", Explain(explainer, limits).answer, methods=["POST"])
    handlers: Any = {HTTPException: error_response, Exception: error_response}
    app = Starlette(routes=[*routes, explain], exception_handlers=handlers)
    return Middleware(app, ("127.0.0.1", "localhost", *names), limits.connections)


def _openapi(limits: ServiceLimits) -> Any:
    """The OpenAPI document."""
    text = (HERE / "openapi.yaml").read_text("utf-8")
    for name in ("megabytes", "megapixels"):
        text = text.replace(f"{{{name}}}", f"{getattr(limits, name):g}")
    return yaml.safe_load(text)


class Explain:
    """Answers photos with JSON or, for browsers, with a page."""

    def __init__(self, explainer: PhotoExplainer, limits: ServiceLimits) -> None:
        self.explainer, self.limits = explainer, limits
        self._reader = ThreadPoolExecutor(1, "photos")  # one after the other, or large ones fill the memory
        self._batches = Batches(explainer, ThreadPoolExecutor(1, "model"), limits.batch)

    async def answer(self, request: Request) -> Response:
        """Answer a request.

        Raises:
            HTTPException: with what is wrong with it, or 504 if it takes too long.
        """
        crop, photo = crop_of(request), await photo_of(request, self.limits.bytes)
        as_page, most = "text/html" in request.headers.get("accept", ""), self.limits.answer_seconds
        try:
            async with asyncio.timeout(most):
                answer = await self._batches.explain(await self._read(photo, crop))
                if as_page:
                    return HTMLResponse(await run_in_threadpool(answer.page))
                return JSONResponse(await run_in_threadpool(answer.json))
        except TimeoutError:
            late = f"Expected an answer within {most:g} seconds, but the service is too busy, or the photo too large."
            raise Refusal(504, "timeout", late) from None

    async def _read(self, photo: bytes, crop: list[int] | None) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._reader, self.explainer.read, photo, crop)
        except ValueError as error:
            raise unreadable(error) from None
