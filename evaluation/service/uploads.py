"""The photo of a request: its body, or the file of a form as ``curl -F photo=@x.jpg`` sends it."""

from __future__ import annotations

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from protometry.datamodules.photos.files import TooManyPixelsError
from protometry.evaluation.service.middleware import Refusal
from protometry.run_folder.command_line.serving import body_of, parts_of_body

FORM = "multipart/form-data"


class _InMemory(MultiPartParser):
    spool_max_size = 2**40  # bytes: bodies are bounded, and the disk may be read-only


async def photo_of(request: Request, most: int) -> bytes:
    """The content of the photo's file.

    Args:
        request: with the photo as its body, or in a form.
        most: bytes of the body.

    Raises:
        HTTPException: 413 if the body has more than ``most`` bytes, 400 if there is no photo in it.
    """
    if request.headers.get("content-type", "").split(";")[0].strip().lower() == FORM:
        photo = await _of_form(request, most)
    else:
        photo = await body_of(request, most)
    if not photo:
        wanted = "Expected a photo, as the body of the request or as a file in a form, but got nothing."
        raise Refusal(400, "no_photo", wanted)
    return photo


async def _of_form(request: Request, most: int) -> bytes:
    parser = _InMemory(request.headers, parts_of_body(request, most), max_files=1, max_fields=10)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise Refusal(400, "bad_form", f"Expected a form with one photo, but: {error.message}") from None
    try:
        files = [await value.read() for _, value in form.multi_items() if isinstance(value, UploadFile)]
    finally:
        await form.close()
    return b"".join(files)


def crop_of(request: Request) -> list[int] | None:
    """The part of the photo that is explained, as ``?crop=X,Y,WIDTH,HEIGHT`` in pixels; None for all of it.

    Raises:
        HTTPException: 400 if these are not four numbers.
    """
    if (text := request.query_params.get("crop")) is None:
        return None
    try:
        x, y, width, height = map(int, text.split(","))
    except ValueError:
        wanted = f"Expected `crop` to be x, y, width and height in pixels, such as 10,20,300,200, but got {text!r:.60}."
        raise Refusal(400, "bad_crop", wanted) from None
    return [x, y, width, height]


def unreadable(error: ValueError) -> Refusal:
    """The answer to a photo that cannot be read, or not be cropped."""
    if isinstance(error.__cause__, TooManyPixelsError):
        return Refusal(413, "too_many_pixels", str(error))
    if str(error).startswith("Expected argument `crop`"):
        return Refusal(400, "bad_crop", str(error))
    return Refusal(415, "not_a_photo", str(error))
