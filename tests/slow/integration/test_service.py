"""The command that serves a model, from its first line to its orderly end."""

import io
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from PIL import Image

from protometry.evaluation.__main__ import main
from tests.lightning_modules.registry import tiny_birds
from tests.untrained import saved

pytestmark = pytest.mark.slow


def test_requests_that_have_arrived_are_answered_before_the_end(tmp_path):
    main([str(saved("ProtoPNet", tiny_birds(), tmp_path / "x.ckpt")), "--out", str(tmp_path / "model")])
    photo = io.BytesIO()
    Image.effect_noise((3000, 2000), 60).convert("RGB").save(photo, "JPEG")
    command = [sys.executable, "-m", "protometry", "serve", str(tmp_path / "model"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, ThreadPoolExecutor(8) as pool:
        try:
            url = re.search(r"http://\S+", server.stdout.readline())[0]
            assert httpx.post(f"{url}explain", content=photo.getvalue(), timeout=60).status_code == 200
            asked = [pool.submit(httpx.post, f"{url}explain", content=photo.getvalue(), timeout=60) for _ in range(8)]
            asked[0].result()
            server.send_signal(signal.SIGTERM)
            assert {answer.result().status_code for answer in asked} == {200}
            assert server.wait(20) == 0
        finally:
            server.kill()
        assert server.stdout.read().count("POST /explain 200") == 9
