"""What a browser sends, checked before anything is done with it."""

from __future__ import annotations

import hmac
from hashlib import sha256
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from protometry.run_folder.command_line.serving import body_of
from protometry.studies.questions import Form, form_of

MAX_BODY = 64 * 1024  # bytes
MAX_FIELDS = 500
FORM = "application/x-www-form-urlencoded"


async def read_form(request: Request) -> Form:
    """Read a form.

    Raises:
        HTTPException: 403 for a form of another site, 415 for another kind of content, 413 if it is too long, 400 if
            it is broken.
    """
    origin = request.headers.get("origin", "null")  # so browsers call it where no referrer may be sent, as here
    foreign = origin != "null" and origin.rpartition("//")[2] != request.headers.get("host")
    if foreign or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HTTPException(403)
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != FORM:
        raise HTTPException(415)
    body = await body_of(request, MAX_BODY)
    try:
        fields = parse_qsl(
            body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS, separator="&"
        )
    except ValueError:  # also of decoding
        raise HTTPException(400) from None
    if any("\0" in name or "\0" in value for name, value in fields):
        raise HTTPException(400)
    return form_of(fields)


def token_of(secret: str, participant: str, page: str) -> str:
    """What the form of a page carries, so that no other site can send it."""
    return hmac.new(secret.encode(), f"{participant} {page}".encode(), sha256).hexdigest()[:32]


def is_token(given: str, secret: str, participant: str, page: str) -> bool:
    """Whether a token belongs to the page, compared in constant time."""
    return hmac.compare_digest(given.encode(), token_of(secret, participant, page).encode())
