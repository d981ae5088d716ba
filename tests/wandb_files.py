"""The files of offline W&B runs, read back record by record."""

from __future__ import annotations

import json
import struct
from collections import namedtuple
from pathlib import Path
from typing import Any

import wandb
from wandb.proto import wandb_internal_pb2


def records(path: Path) -> list[Any]:
    """All records of a W&B file: a 7-byte head, then LevelDB's log format in blocks of 32 KiB."""
    data = path.read_bytes()
    position, message, result = 7, b"", []
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        message += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            result.append(wandb_internal_pb2.Record.FromString(message))
            message = b""
    return result


Segment = namedtuple("Segment", "folder run history metrics config summary artifacts")


def segments(folder: Path) -> list[Segment]:
    """What each offline segment holds, in order of time."""
    wandb.teardown()  # W&B's own process writes the last records after the run is finished
    collected = []
    for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        every = records(path)
        (run,) = [r.run for r in every if r.WhichOneof("record_type") == "run"]
        history = [
            {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in r.history.item}
            for r in every
            if r.WhichOneof("record_type") == "history"
        ]
        metrics = {r.metric.name or r.metric.glob_name: r.metric for r in every if r.HasField("metric")}
        config = {u.key: json.loads(u.value_json) for r in every for u in r.config.update}
        summary = {"/".join(u.nested_key) or u.key: json.loads(u.value_json) for r in every for u in r.summary.update}
        artifacts = [r.artifact for r in every if r.WhichOneof("record_type") == "artifact"]
        collected.append(Segment(path.parent, run, history, metrics, config, summary, artifacts))
    return collected


def history(segment: Segment, key: str) -> list[Any]:
    """The values of a key in order; media and tables are mappings of what W&B knows of them."""
    flat: list[Any] = []
    for row in segment.history:
        parts = {name.removeprefix(f"{key}/"): value for name, value in row.items() if name.startswith(f"{key}/")}
        flat += [row[key]] if key in row else [parts] if "_type" in parts else []
    return flat


def table(segment: Segment, entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a table in the history."""
    content = json.loads((segment.folder / "files" / entry["path"]).read_text())
    return [dict(zip(content["columns"], row, strict=True)) for row in content["data"]]
