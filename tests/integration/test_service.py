"""The example service: answers to photos, and sentences for everything else."""

import io
import json
import runpy

from PIL import Image
from starlette.testclient import TestClient

from protometry import PhotoExplainer
from protometry.evaluation.__main__ import main
from tests.lightning_modules.registry import tiny_birds
from tests.tiny_runs import ROOT
from tests.untrained import saved


def photo_of(*size):
    content = io.BytesIO()
    Image.radial_gradient("L").resize(size).save(content, "JPEG")
    return content.getvalue()


def test_photos_are_answered_and_everything_else_is_refused_with_a_sentence(tmp_path):
    main([str(saved("ProtoPNet", tiny_birds(), tmp_path / "x.ckpt")), "--out", str(tmp_path / "model")])
    service = runpy.run_path(str(ROOT / "examples" / "service.py"))
    app, photo = service["make_app"](str(tmp_path / "model"), "my.host"), photo_of(80, 50)
    client = TestClient(app, "http://my.host")
    expected = PhotoExplainer(tmp_path / "model")(photo)
    assert client.post("/explain", content=photo).json() == json.loads(json.dumps(expected.json()))
    page = client.post("/explain", content=photo, headers={"Accept": "text/html"})
    assert page.text == expected.page()
    assert "Drop a photo" in client.get("/").text
    for body, status, said in (
        (b"<svg>", 415, "to be one of JPEG, PNG"),
        (b"", 415, "to be one of JPEG, PNG"),
        (photo[: len(photo) // 2], 415, "cannot be decoded: image file is truncated"),
        (photo_of(8000, 5001), 415, "8000x5001 pixels"),
        (bytes(10_000_001), 413, "at most 10 MB"),
    ):
        refused = client.post("/explain", content=body)
        assert refused.status_code == status
        assert refused.text.startswith("Expected")
        assert said in refused.text
    assert client.get("/explain").status_code == 405
    assert TestClient(app, "http://other.host").post("/explain", content=photo).status_code == 400
