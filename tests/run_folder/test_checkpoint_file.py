"""Checkpoint files that are missing, damaged or foreign are refused before anything of them is used."""

import zipfile

import pytest
import torch

from protometry.run_folder.checkpoint_file import read_checkpoint
from tests.empty_checkpoint import EMPTY

WHOLE = EMPTY | {"state_dict": {"weight": torch.arange(6.0).view(2, 3)}}


def test_a_flipped_bit_of_a_weight_is_found(tmp_path):
    path = tmp_path / "x.ckpt"
    torch.save(WHOLE, path)
    data = bytearray(path.read_bytes())
    at = data.index(torch.tensor([3.0, 4.0]).numpy().tobytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert torch.load(path)["state_dict"]["weight"][1, 0] != 3  # torch itself does not see it
    for options in ({}, {"mmap": True}):
        with pytest.raises(ValueError, match=r"x.ckpt to be a checkpoint .* is damaged or foreign \(wrong checksum of"):
            read_checkpoint(path, **options)


def test_a_checkpoint_zipped_again_with_compression_is_refused(tmp_path):
    path = tmp_path / "x.ckpt"
    torch.save(WHOLE, tmp_path / "plain.ckpt")
    with zipfile.ZipFile(tmp_path / "plain.ckpt") as plain, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for record in plain.infolist():
            packed.writestr(record.filename, plain.read(record))
    mapped = torch.load(path, mmap=True)["state_dict"]["weight"]
    assert not torch.equal(mapped, WHOLE["state_dict"]["weight"])  # torch itself reads the packed bytes as numbers
    with pytest.raises(ValueError, match=r"or foreign \(plain/data.pkl is compressed, which torch.save never does\)"):
        read_checkpoint(path)


def test_no_file(tmp_path):
    for path, result in (tmp_path, "is a folder; name a file"), (tmp_path / "x.ckpt", "does not exist"):
        with pytest.raises(FileNotFoundError, match=rf"`ckpt_path` to be a checkpoint file, but .* {result}"):
            read_checkpoint(path)


@pytest.mark.parametrize("content", [b"", b"x" * 1000, b"PK\x03\x04" + b"\0" * 100])
def test_no_checkpoint(content, tmp_path):
    (tmp_path / "x.ckpt").write_bytes(content)
    with pytest.raises(
        ValueError, match="to be a checkpoint with tensors and plain types only, but it is damaged or f"
    ):
        read_checkpoint(tmp_path / "x.ckpt")


@pytest.mark.parametrize("name", list(WHOLE))
def test_a_missing_part_is_named(name, tmp_path):
    torch.save({key: value for key, value in WHOLE.items() if key != name}, tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match=f"but it lacks `{name}"):
        read_checkpoint(tmp_path / "x.ckpt")
