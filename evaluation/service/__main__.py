"""A web service that explains photos: ``protometry serve model/``."""

from __future__ import annotations

import logging
import math
import sys
from pathlib import Path

from protometry.evaluation.__main__ import checkpoint_of
from protometry.evaluation.service.limits import ServiceLimits
from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.first_look import check_checkpoint, is_model_folder
from protometry.run_folder.command_line.messages import requires
from protometry.run_folder.command_line.parser import StrictParser

ABOUT = "Explain photos that arrive over HTTP: a page to drop one on, and JSON for programs."


def main(args: list[str] | None = None) -> None:
    """Serve a model until the process is ended; photos that arrived are then answered first.

    Raises:
        FileNotFoundError: if there is no such model.
        ValueError: if it is damaged, or the port is in use or no port.
    """
    parser = StrictParser(prog="protometry serve", description=ABOUT)
    folder = "a folder of `protometry export`, its address on the hub, or a run or checkpoint whose data are at hand"
    parser.add_argument("model", type=str, help=folder)
    parser.add_argument("--host", type=str, default="127.0.0.1", help="address to listen at; 0.0.0.0 for all")
    parser.add_argument("--port", type=int, default=8000, help="to listen at; 0 for any that is free")
    names = "names, separated by commas, under which others reach the service; * for any"
    parser.add_argument("--public_host", type=str, default="", help=names)
    parser.add_argument(
        "--allow_classes", type=str, default="", help="packages, separated by commas, whose classes the model may name"
    )
    parser.add_class_arguments(ServiceLimits)
    config = parser.parse_args(args)
    limits = ServiceLimits(**{name: config[name] for name in ServiceLimits.__dataclass_fields__})
    model = config.model if is_model_folder(config.model) else checkpoint_of(Path(config.model))
    if model != config.model:
        check_checkpoint(model, "model")
    try:
        import python_multipart  # noqa: F401 - which Starlette misses only when a form arrives

        from protometry.evaluation.service.app import make_app
        from protometry.run_folder.command_line.serving import listening, server_of, until_ended
    except ModuleNotFoundError as error:
        name = str(error.name).split(".")[0]
        if name not in ("starlette", "uvicorn", "python_multipart"):
            raise
        raise ValueError(requires("service", name)) from error
    public, allowed = (list(filter(None, text.split(","))) for text in (config.public_host, config.allow_classes))
    app = make_app(model, limits, [config.host, *public], allow_classes=allowed)
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING, stream=sys.stdout)
    logging.getLogger("protometry.service").setLevel(logging.INFO)
    whole = limits.request_seconds + limits.answer_seconds
    server = server_of(
        app, 2 * limits.connections, limits.request_seconds, whole + limits.request_seconds, math.ceil(whole)
    )
    with listening(config.host, config.port) as listener:
        name = f"[{config.host}]" if ":" in config.host else config.host
        print(f"{model}: http://{name}:{listener.getsockname()[1]}/", flush=True)
        with until_ended():
            server.run([listener])


if __name__ == "__main__":
    from_shell(main)
