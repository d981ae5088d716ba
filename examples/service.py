"""A web service that explains photos: a page to drop one on, and JSON for programs.

pip install "protometry[service]"
protometry export runs/quickstart --out model/
python examples/service.py model/ 8000
curl --data-binary @PHOTO http://127.0.0.1:8000/explain

It answers everyone who reaches the address; put what your users need, such as a login, in front of it. Names of hosts
under which it may be reached there follow the port.
"""

import sys

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from protometry import PhotoExplainer
from protometry.run_folder.command_line.serving import body_of, listening, server_of

MEGABYTES, MEGAPIXELS, CONNECTIONS = 10, 40, 32  # of a photo, and how many may be on their way at once
PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><title>Explain a photo</title>
<style>
  body { margin: 0; font: 16px/1.5 system-ui, "Liberation Sans", sans-serif; color: #1c2330; }
  main { max-width: 80rem; margin: 0 auto; padding: 1rem; }
  h1 { font-size: 1.6rem; margin: .5rem 0; }
  label { display: block; padding: 1.5rem 1rem; border: 2px dashed #535c6b; border-radius: 6px; text-align: center; }
  label.over, label:focus-within { border-color: #1a4fa3; background: #f4f6f9; }
  input { display: block; margin: .5rem auto 0; max-width: 100%; font: inherit; }
  iframe { width: 100%; border: 0; }
</style>
<main>
  <h1>Explain a photo</h1>
  <label>Drop a photo here, or choose one<input type="file" accept="image/*"></label>
  <p role="status"></p>
</main>
<iframe title="Explanation" sandbox="allow-same-origin" hidden></iframe>
<script>
  const [area, input, status, frame] =
    ["label", "input", "[role=status]", "iframe"].map((name) => document.querySelector(name));
  async function explain(photo) {
    if (!photo) return;
    status.textContent = `Explaining ${photo.name} …`;
    frame.hidden = true;
    try {
      const answer = await fetch("explain", { method: "POST", body: photo, headers: { Accept: "text/html" } });
      const text = await answer.text();
      status.textContent = answer.ok ? photo.name : text;
      if (answer.ok) { frame.hidden = false; frame.srcdoc = text; }
    } catch { status.textContent = "The service does not answer."; }
  }
  const fitted = () => { frame.style.height = `${frame.contentDocument.documentElement.scrollHeight}px`; };
  frame.onload = () => {
    fitted();
    frame.contentDocument.querySelectorAll("details").forEach((each) => { each.ontoggle = fitted; });
  };
  input.onchange = () => explain(input.files[0]);
  area.ondragover = (event) => { event.preventDefault(); area.classList.add("over"); };
  area.ondragleave = () => area.classList.remove("over");
  area.ondrop = (event) => {
    event.preventDefault();
    area.classList.remove("over");
    explain(event.dataTransfer.files[0]);
  };
</script>
</html>
"""


def make_app(model: str, *names: str) -> Starlette:
    """The service of one model, a folder of ``protometry export``, at this machine and hosts of these names."""
    explainer = PhotoExplainer(model, max_pixels=MEGAPIXELS * 1_000_000)

    def answered(photo: bytes, as_page: bool) -> Response:
        try:
            answer = explainer(photo)
        except ValueError as error:  # not a photo, or too many pixels
            return PlainTextResponse(str(error), 415)
        return HTMLResponse(answer.page()) if as_page else JSONResponse(answer.json())

    async def explain(request: Request) -> Response:
        photo = await body_of(request, MEGABYTES * 1_000_000)
        return await run_in_threadpool(answered, photo, "text/html" in request.headers.get("accept", ""))

    front = Route("/", lambda request: HTMLResponse(PAGE))
    named = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", *names], www_redirect=False)
    return Starlette(routes=[front, Route("/explain", explain, methods=["POST"])], middleware=[named])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python examples/service.py MODEL_FOLDER [PORT [HOST_NAME ...]]")
    folder, port, *names = sys.argv[1:] if len(sys.argv) > 2 else [sys.argv[1], "8000"]
    with listening("127.0.0.1", int(port)) as listener:
        server_of(make_app(folder, *names), CONNECTIONS).run([listener])
