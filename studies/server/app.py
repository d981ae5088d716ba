"""The web application of a study."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Awaitable, Callable
from functools import lru_cache
from pathlib import Path
from typing import Literal

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from protometry.studies.bundle import FILES, Bundle, bundle_hash
from protometry.studies.flow import Page, Status, steps
from protometry.studies.participants import Participant
from protometry.studies.questions import Form, read_answers
from protometry.studies.server.forms import is_token, read_form, token_of
from protometry.studies.server.pages import MEDIA_TYPES, Pages, fields_of
from protometry.studies.server.platforms import UNPAID, arrival, way_back
from protometry.studies.store import RefusedError, Store

HEADERS = {  # nothing from elsewhere, and in no frame
    "Content-Security-Policy": ("default-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'"),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Application:
    """Responses to the requests of participants."""

    def __init__(self, bundle: Bundle, store: Store) -> None:
        self.bundle, self.store, self.pages = bundle, store, Pages(bundle)
        self.media = bundle.media()
        self._way = lru_cache(1000)(lambda *who: steps(bundle.study, *who))  # people who are taking part
        self._stamp = self._files()

    def _files(self) -> list[tuple[int, int]]:
        stats = [(self.bundle.folder / name).stat() for name in FILES]
        return [(stat.st_mtime_ns, stat.st_size) for stat in stats]

    def is_unchanged(self) -> bool:
        """Whether the files of the study are those that were read at the start."""
        try:
            stamp = self._files()
            if stamp == self._stamp:
                return True
            unchanged = bundle_hash(self.bundle.folder) == self.bundle.hash
        except OSError:
            return False
        if unchanged:
            self._stamp = stamp
        return unchanged

    def way(self, who: Participant) -> list[Page]:
        """All pages of a participant."""
        return self._way(tuple(who.arms), tuple(who.items), who.seed)

    def tokens(self, who: Participant, step: int) -> tuple[str, str]:
        """Tokens of a page and of withdrawing."""
        return token_of(self.store.secret, who.id, str(step)), token_of(self.store.secret, who.id, "withdraw")

    def start(self, request: Request) -> Response:
        """``GET /``: the way in, and back for those who are known."""
        if self._known(request):
            return RedirectResponse("/p", 303)
        is_local = self.bundle.study.platform.kind == "local"
        return page(self.pages.message("landing", start="/join" if is_local else ""))

    def join(self, request: Request, form: Form | None = None) -> Response:
        """``POST /join``: a place in the study, the same for the same person; ``GET`` asks whether to start."""
        comes = arrival(self.bundle.study.platform, request.query_params)
        if comes is None:
            return page(self.pages.message("landing"), 400)
        who = self._known(request)
        is_same = who is not None and comes.external in (None, who.external)
        if form is None and not is_same:  # previews of links and programs that follow them take no place
            return page(self.pages.message("start", start=f"/join?{request.url.query}"))
        if comes.external is not None or not is_same:
            about = (comes.external, comes.session, request.headers.get("user-agent", ""), who.id if who else "")
            try:
                who = self.store.join(*about)
            except RefusedError as reason:
                return self.end(reason.name, 403)
        if who is None:
            return page(self.pages.message("full"))
        response = RedirectResponse("/p", 303)
        age, secure = 30 * 86400, request.url.scheme == "https"
        response.set_cookie(self.store.cookie, who.id, age, httponly=True, samesite="lax", secure=secure)
        return response

    def show(self, request: Request) -> Response:
        """``GET /p``: the current page."""
        who = self._known(request)
        if who is None:
            return page(self.pages.message("unknown"), 403)
        if who.status != "active":
            return RedirectResponse("/done", 303)
        way = self.way(who)
        self.store.open_page(who, way[who.step].page)
        earlier = self.store.answers(who)
        return page(self.pages.step(way, who.step, self.tokens(who, who.step), earlier=earlier))

    def answer(self, request: Request, form: Form) -> Response:
        """``POST /p``: store the answers to a page, and continue."""
        who = self._known(request)
        if who is None:
            return page(self.pages.message("unknown"), 403)
        if not is_token(form.token, self.store.secret, who.id, str(form.step)):
            return page(self.pages.message("refused"), 403)
        way = self.way(who)
        if form.step >= len(way):
            return page(self.pages.message("stale"), 409)
        answers, errors = read_answers(way[form.step].questions, form.answers, self.bundle.study.language)
        current = form.step == who.step and who.status == "active"
        earlier = self.store.answers(who)
        if errors and current:
            tokens, given = self.tokens(who, form.step), dict(form.answers)
            return page(self.pages.step(way, form.step, tokens, given=given, errors=errors, earlier=earlier), 422)
        outcome = self.store.submit(who, way, form.step, answers, form.client) if not errors else "conflict"
        if outcome in ("stored", "same"):
            return RedirectResponse("/p", 303)
        if outcome == "stale" or form.step not in earlier:
            return page(self.pages.message("stale"), 409)
        given = fields_of(earlier[form.step])
        tokens = self.tokens(who, form.step)
        html = self.pages.step(way, form.step, tokens, given=given, note="conflict", earlier=earlier, read_only=True)
        return page(html, 409)

    def busy(self, request: Request, form: Form | None) -> Response:
        """What is shown where the database cannot be written: the page with the answers that were sent."""
        headers = {"Retry-After": "5"}
        try:
            who = self._known(request)
            way = self.way(who) if who else []
            if who and form and 0 <= form.step < len(way):
                tokens, given, earlier = self.tokens(who, form.step), dict(form.answers), self.store.answers(who)
                html = self.pages.step(way, form.step, tokens, given=given, note="busy", earlier=earlier)
                return page(html, 503, headers)
        except sqlite3.Error:
            pass  # nor read: then the message alone
        return page(self.pages.message("busy"), 503, headers)

    def withdraw(self, request: Request, form: Form) -> Response:
        """``POST /withdraw``: delete what the participant has answered."""
        who = self._known(request)
        if who is None or not is_token(form.token, self.store.secret, who.id, "withdraw"):
            return page(self.pages.message("unknown" if who is None else "refused"), 403)
        self.store.withdraw(who)
        response = RedirectResponse("/withdrawn", 303)
        response.delete_cookie(self.store.cookie)
        return response

    def withdrawn(self, request: Request) -> Response:
        """``GET /withdrawn``: after withdrawing, when nothing is known of the person any more."""
        return self.end("withdrawn")

    def end(self, name: Status | Literal["elsewhere"], status: int = 200, token: str = "") -> Response:
        """A page at which the study ends, with the way back to the platform."""
        platform = self.bundle.study.platform
        code, link = way_back(platform, "withdrawn" if name == "elsewhere" else name)
        is_unpaid = platform.kind == "prolific" and name in UNPAID
        return page(self.pages.message(name, code=code, link=link, is_unpaid=is_unpaid, withdraw=token), status)

    def done(self, request: Request) -> Response:
        """``GET /done``: the end, with the code of the platform."""
        who = self._known(request)
        if who is None:
            return page(self.pages.message("unknown"), 403)
        if who.status == "active":
            return RedirectResponse("/p", 303)
        return self.end(who.status, token=self.tokens(who, 0)[1])

    def picture(self, request: Request) -> Response:
        """``GET /media/<name>``: a picture of the study, and no other file."""
        name = request.path_params["name"]
        if name not in self.media:
            return Response("not found", 404)
        content = (self.bundle.folder / "media" / name).read_bytes()
        if hashlib.sha256(content).hexdigest() != name.split(".")[0]:
            return Response("changed", 503)
        headers = {"Cache-Control": "private, max-age=86400"}
        return Response(content, media_type=MEDIA_TYPES[name.split(".")[1]], headers=headers)

    def health(self, request: Request) -> Response:
        """``GET /healthz``: whether answers can be stored and the study is the one that was started."""
        try:
            self.store.check()
        except (sqlite3.Error, OSError) as error:
            return JSONResponse({"database": str(error)}, 503)
        unchanged = self.is_unchanged()
        return JSONResponse({"database": "ok", "study": "ok" if unchanged else "changed"}, 200 if unchanged else 503)

    def _known(self, request: Request) -> Participant | None:
        name = request.cookies.get(self.store.cookie)
        return None if not name else self.store.find(name)


class WithHeaders:
    """Adds headers to all responses of an application."""

    def __init__(self, app: ASGIApp, headers: dict[str, str]) -> None:
        self.app, self.headers = app, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.headers)
            await send(message)

        await self.app(scope, receive, send_with_headers)


def page(content: str, status: int = 200, headers: dict[str, str] | None = None) -> HTMLResponse:
    """A page that no browser keeps."""
    return HTMLResponse(content, status, {"Cache-Control": "no-store", **(headers or {})})


def make_app(bundle: Bundle, store: Store, hosts: list[str]) -> Starlette:
    """The application."""
    application = Application(bundle, store)

    def handler(function: Callable[..., Response], form: bool = False) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            sent = await read_form(request) if form else None
            arguments = (request, sent) if form else (request,)
            if not application.is_unchanged():
                return page(application.pages.message("changed"), 503)
            try:
                return await run_in_threadpool(function, *arguments)
            except sqlite3.Error:
                return await run_in_threadpool(application.busy, request, sent)

        return handle

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return page(application.pages.message("refused"), error.status_code)

    async def health(request: Request) -> Response:
        return await run_in_threadpool(application.health, request)

    async def picture(request: Request) -> Response:
        return application.picture(request)  # here, and not in a thread, where it would wait for answers to be stored

    return Starlette(
        routes=[
            Route("/", handler(application.start)),
            Route("/join", handler(application.join), methods=["GET"]),
            Route("/join", handler(application.join, form=True), methods=["POST"]),
            Route("/p", handler(application.show), methods=["GET"]),
            Route("/p", handler(application.answer, form=True), methods=["POST"]),
            Route("/withdraw", handler(application.withdraw, form=True), methods=["POST"]),
            Route("/withdrawn", handler(application.withdrawn)),
            Route("/done", handler(application.done)),
            Route("/media/{name}", picture),
            Route("/healthz", health),
            Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
        ],
        middleware=[
            Middleware(WithHeaders, headers=HEADERS),
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
        ],
        exception_handlers={HTTPException: refused},
    )
