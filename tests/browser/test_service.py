"""The page of the service: a photo is dropped, and its explanation is read."""

import base64
import threading
import time

import pytest
import uvicorn
from PIL import Image

from protometry import PhotoExplainer
from protometry.evaluation.__main__ import main
from protometry.evaluation.service.app import make_app
from protometry.evaluation.service.limits import ServiceLimits
from tests.lightning_modules.registry import tiny_birds
from tests.untrained import saved

pytestmark = pytest.mark.browser

DROP = """([content, name]) => {
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0)), dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([bytes], name));
    for (const kind of ["dragover", "drop"])
        document.querySelector("label").dispatchEvent(new DragEvent(kind, { dataTransfer, cancelable: true }));
}"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    main([str(saved("ProtoPNet", tiny_birds(), folder / "x.ckpt")), "--out", str(folder / "model")])
    return str(folder / "model")


@pytest.fixture(scope="module")
def address(model):
    app = make_app(model, ServiceLimits())
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize("width", [390, 1440])
def test_a_dropped_photo_is_explained(width, model, address, chromium, tmp_path):
    axe = pytest.importorskip("axe_core_python.sync_playwright").Axe()
    photo = tmp_path / "my bird.png"
    Image.effect_noise((80, 50), 60).convert("RGB").save(photo)
    answer = PhotoExplainer(model)(photo)
    page, problems = chromium.new_page(viewport={"width": width, "height": 900}), []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: request.url.startswith((address, "data:")) or problems.append(request.url))
    page.goto(address)
    page.evaluate(DROP, [base64.b64encode(photo.read_bytes()).decode(), photo.name])
    inside = page.frame_locator("iframe")
    inside.locator("h1").wait_for()
    assert inside.locator(
        "h1"
    ).inner_text() == f"photo: predicted {answer.prediction}, {answer.probability:.1%}".replace("%", " %")
    assert inside.locator("tbody tr").count() > len(answer.units)
    assert page.locator("[role=status]").inner_text() == "my bird.png"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    frame = page.frames[1]
    assert frame.evaluate("document.documentElement.scrollHeight <= window.innerHeight")  # nothing is cut
    assert [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in axe.run(page)["violations"]] == []
    assert problems == []
    page.locator("input").set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"text"})
    page.locator("[role=status]", has_text="to be one of JPEG, PNG").wait_for()
    assert page.locator("iframe").is_hidden()
    page.close()
