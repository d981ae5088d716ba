"""The service: answers to photos, alone and in batches, and an error with a code for everything else."""

import asyncio
import io
import json
import logging
import re
import time

import httpx
import pytest
from PIL import Image
from starlette.testclient import TestClient

from protometry import PhotoExplainer
from protometry.evaluation.__main__ import main
from protometry.evaluation.service.app import make_app
from protometry.evaluation.service.limits import ServiceLimits
from tests.lightning_modules.registry import tiny_birds
from tests.untrained import saved


def photo_of(*size, turned=0):
    content = io.BytesIO()
    Image.radial_gradient("L").rotate(turned).resize(size).save(content, "JPEG")
    return content.getvalue()


PHOTO = photo_of(80, 50)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    main([str(saved("ProtoPNet", tiny_birds(), folder / "x.ckpt")), "--out", str(folder / "model")])
    return folder / "model"


@pytest.fixture(scope="module")
def expected(model):
    return PhotoExplainer(model)(PHOTO)


@pytest.fixture(scope="module")
def app(model):
    return make_app(model, ServiceLimits(megabytes=1, megapixels=1), ["my.host"])


@pytest.fixture(scope="module")
def client(app):
    return TestClient(app, "http://my.host", raise_server_exceptions=False)


def as_sent(answer):
    return json.loads(json.dumps(answer.json()))


def test_a_photo_is_answered_as_a_body_and_in_a_form(client, expected, model):
    assert client.post("/explain", content=PHOTO).json() == as_sent(expected)
    form = {"photo": ("my bird.jpg", PHOTO)}
    assert client.post("/explain", files=form, data={"more": "text"}).json() == as_sent(expected)
    assert client.post("/explain", content=PHOTO, headers={"Accept": "text/html"}).text == expected.page()
    cut = client.post("/explain?crop=10,20,40,30", content=PHOTO).json()
    assert cut == as_sent(PhotoExplainer(model)(PHOTO, [10, 20, 40, 30]))


@pytest.mark.parametrize(
    ("sent", "status", "code", "message"),
    [
        ({"content": b"<svg>"}, 415, "not_a_photo", "to be one of JPEG, PNG"),
        ({"content": PHOTO[: len(PHOTO) // 2]}, 415, "not_a_photo", "image file is truncated"),
        ({"content": photo_of(1001, 1000)}, 413, "too_many_pixels", "1001x1000 pixels"),
        ({"content": bytes(1_000_001)}, 413, "too_large", "at most 1 MB"),
        ({"content": iter([bytes(600_000)] * 2)}, 413, "too_large", "at most 1 MB"),
        ({"files": {"photo": bytes(1_000_001)}}, 413, "too_large", "at most 1 MB"),
        ({"content": b""}, 400, "no_photo", "Expected a photo"),
        ({"files": {"photo": b""}}, 400, "no_photo", "Expected a photo"),
        ({"files": [("a", PHOTO), ("b", PHOTO)]}, 400, "bad_form", "one photo"),
        ({"content": PHOTO, "headers": {"Content-Type": "multipart/form-data"}}, 400, "bad_form", "boundary"),
        ({"content": PHOTO, "params": {"crop": "1,2"}}, 400, "bad_crop", "such as 10,20,300,200"),
        ({"content": PHOTO, "params": {"crop": "0,0,81,50"}}, 400, "bad_crop", "80x50"),
        ({"content": PHOTO, "headers": {"Host": "other.host"}}, 421, "unknown_host", "public_host"),
    ],
)
def test_what_is_refused_has_a_code(client, sent, status, code, message):
    refused = client.post("/explain", **sent)
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
    assert message in refused.json()["error"]["message"]
    document = client.get("/openapi.json").json()
    assert f"`{code}`" in document["paths"]["/explain"]["post"]["responses"][str(status)]["description"]


def test_other_pages(client, model, caplog):
    assert "Drop a photo" in client.get("/").text
    assert client.get("/healthz", headers={"Host": "10.0.0.7"}).json() == {"status": "ok"}
    facts = client.get("/model").json()
    assert (facts["model"], len(facts["classes"]), facts["image_size"]) == ("ProtoPNet", 8, [32, 32])
    assert facts["card"] == (model / "README.md").read_text()
    with caplog.at_level(logging.INFO, "protometry.service"):
        assert client.get("/explain").json()["error"]["code"] == "method_not_allowed"
        assert client.get("/a%0Ab").json()["error"]["code"] == "not_found"
    lines = [re.sub(r"\d+ ms \d+ bytes", "…", line) for line in caplog.messages]
    assert lines == ["testclient GET /explain 405 …", "testclient GET /a b 404 …"]


def test_the_document_describes_what_is_answered(client, expected):
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    for name, content in (
        ("Answer", expected.json()),
        ("Unit", expected.json()["units"][0]),
        ("Model", client.get("/model").json()),
    ):
        assert list(schemas[name]["properties"]) == schemas[name]["required"] == list(content), name
    assert "up to 1 MB and 1 megapixels" in document["paths"]["/explain"]["post"]["requestBody"]["description"]


def together(app, photos):
    """What several requests at once get."""

    async def ask():
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://localhost"
        ) as client:
            return await asyncio.gather(*(client.post("/explain", content=photo) for photo in photos))

    return asyncio.run(ask())


def close(one, other):
    """Whether plain data are equal up to the rounding of numbers."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    return one == pytest.approx(other, abs=1e-5) if isinstance(one, float) else one == other


def test_requests_at_once_are_answered_in_batches_and_a_bad_one_fails_alone(model, monkeypatch):
    explainer, sizes = PhotoExplainer(model), []
    photos = [photo_of(80, 50, turned=10 * n) for n in range(6)]
    single = [as_sent(explainer(photo)) for photo in photos]
    explain = PhotoExplainer.explain

    def watched(self, samples):
        sizes.append(len(samples))
        time.sleep(0.1)  # while others arrive
        if any(sample["photo_size"] == (7, 7) for sample in samples):
            raise ValueError("no explanation")
        return explain(self, samples)

    monkeypatch.setattr(PhotoExplainer, "explain", watched)
    app = make_app(model, ServiceLimits(batch=4))
    answers = together(app, photos)
    assert all(close(answer.json(), alone) for answer, alone in zip(answers, single, strict=True))
    assert (sum(sizes), max(sizes)) == (6, 4)
    answers = together(app, [*photos[:2], photo_of(7, 7), photos[2]])
    assert [answer.status_code for answer in answers] == [200, 200, 500, 200]
    assert answers[2].json()["error"]["code"] == "internal_error"
    hurried = together(make_app(model, ServiceLimits(connections=2, answer_seconds=0.05)), photos[:3])
    assert [answer.json()["error"]["code"] for answer in hurried] == ["timeout", "timeout", "busy"]


@pytest.mark.parametrize("value", [0, float("inf"), float("nan")])
def test_limits_are_above_zero_and_finite(value):
    with pytest.raises(ValueError, match="`megabytes` to be above 0 and finite, but got"):
        ServiceLimits(megabytes=value)
