import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

import protometry.datamodules.photos.download as download_module
from protometry.datamodules.photos.download import Archive, download, is_free


def archive(folder, members, name="toy.tgz"):
    path = folder / name
    with tarfile.open(path, "w:gz") as tar:
        for member, content in members.items():
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return Archive(path.as_uri(), hashlib.md5(path.read_bytes()).hexdigest(), path.stat().st_size)


def zipped(folder, members, name="toy.zip"):
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archived:
        for member, content in members.items():
            archived.writestr(member, content)
    return Archive(path.as_uri(), None, path.stat().st_size)


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("existing", [True, False])
def test_archives_end_up_side_by_side(tmp_path, server, existing):
    root = tmp_path / "home" / "data"
    if existing:
        root.mkdir(parents=True)
    first = archive(server, {"TOY/a.txt": b"a", "names.txt": b"n"})
    second = archive(server, {"masks/m.png": b"m"}, "masks.tgz")
    download([first, second], root)
    files = {str(path.relative_to(root)) for path in root.rglob("*.*")}
    assert files == {"TOY/a.txt", "names.txt", "masks/m.png"}
    assert [path.name for path in root.parent.iterdir()] == ["data"]  # nothing temporary is left


def test_link_to_an_empty_folder_is_filled(tmp_path, server):
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    download([archive(server, {"a.txt": b"a"})], tmp_path / "data")
    assert (tmp_path / "data").is_symlink()
    assert (tmp_path / "disk/a.txt").read_bytes() == b"a"


def test_home_folder_is_found(tmp_path, server, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    assert not is_free(Path("~/full"))
    download([archive(server, {"a.txt": b"a"})], Path("~/data"))
    assert (tmp_path / "data/a.txt").read_bytes() == b"a"


def test_folder_with_content_is_not_touched(tmp_path, server):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="`root` to be missing or empty for a download"):
        download([archive(server, {"a": b""})], tmp_path / "data")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(("pack", "member"), [
    *((zipped, name) for name in ("../evil.txt", "a/../../evil.txt", "/evil.txt", "..\\evil.txt", "C:\\evil.txt")),
    (archive, "../../evil.txt"),
])  # fmt: skip
def test_member_outside_is_refused(tmp_path, server, pack, member):
    said = "sound zip file, but got: member .* outside the folder" if pack is zipped else "sound tar file, but got"
    with pytest.raises(ValueError, match=f"to be a {said}"):
        download([pack(server, {"good.txt": b"x", member: b"x"})], tmp_path / "home/data")
    assert not list(tmp_path.rglob("*evil.txt"))
    assert not list((tmp_path / "home").iterdir())


def test_zip_without_checksum(tmp_path, server):
    root = tmp_path / "home/data"
    seen = []
    download([zipped(server, {"TOY/a.txt": b"a" * 900})], root, lambda folder: seen.extend(folder.rglob("*.txt")))
    assert ((root / "TOY/a.txt").read_bytes(), [path.name for path in seen]) == (b"a" * 900, ["a.txt"])
    assert [path.name for path in root.parent.iterdir()] == ["data"]


@pytest.mark.parametrize("existing", [True, False])
def test_the_copy_of_a_faster_process_is_used(tmp_path, server, existing):
    root, seen = tmp_path / "home/data", []
    if existing:
        root.mkdir(parents=True)

    def check(folder):
        seen.append(folder)
        if len(seen) == 1:  # the own copy is unpacked; now the other process renames its own
            download([zipped(server, {"a.txt": b"faster"}, "other.zip")], root)

    download([zipped(server, {"a.txt": b"slower"})], root, check)
    assert ((root / "a.txt").read_bytes(), [path.name for path in root.parent.iterdir()]) == (b"faster", ["data"])
    assert seen[1] == root


def test_other_content_that_appears_meanwhile_is_an_error(tmp_path, server):
    root = tmp_path / "home/data"

    def check(folder):
        if folder == root:
            raise ValueError("not what was promised")
        (root / "mine").mkdir(parents=True)

    with pytest.raises(ValueError, match="not what was promised"):
        download([zipped(server, {"a.txt": b"a"})], root, check)
    assert [path.name for path in root.iterdir()] == ["mine"]


def test_failed_check_leaves_nothing(tmp_path, server):
    def check(folder):
        raise ValueError(f"only {len(list(folder.iterdir()))} file")

    good = archive(server, {"a": b"1"})
    md5 = rf"have md5 0000.*, but got {good.md5} \({good.size} of {good.size} bytes\)"
    for archived, said in (
        (zipped(server, {"a.txt": b"a"}), "only 1 file"),
        (Archive(good.url, "0" * 32, good.size), md5),
    ):
        with pytest.raises(ValueError, match=said):
            download([archived], tmp_path / "home/data", check)
        assert not list((tmp_path / "home").iterdir())


@pytest.mark.parametrize("damage", ["cut", "flip", "no tar"])
def test_damaged_archive(tmp_path, server, damage):
    archived = zipped(server, {"a.txt": bytes(range(256)) * 20}, "toy.tgz" if damage == "no tar" else "toy.zip")
    path = server / archived.name
    content = bytearray(path.read_bytes())
    content[60] ^= 0xFF  # inside the compressed data
    path.write_bytes(content[:100] if damage == "cut" else content)
    with pytest.raises(ValueError, match=r"toy\.(zip to be a sound zip|tgz to be a sound tar) file"):
        download([archived], tmp_path / "home/data")
    assert not list((tmp_path / "home").iterdir())


@pytest.mark.parametrize("pack", [archive, zipped])
@pytest.mark.parametrize(("members", "most"), [({"a.txt": bytes(10**6)}, 10), ({f"{i}": b"" for i in range(12)}, 11)])
def test_archive_that_holds_more_than_it_should(tmp_path, server, pack, members, most, monkeypatch):
    monkeypatch.setattr(download_module, "MOST_MEMBERS", most)
    with pytest.raises(ValueError, match=f"to unpack to at most {most} members and .* GB, but it holds m"):
        download([pack(server, members)], tmp_path / "home/data")
    assert not list((tmp_path / "home").iterdir())


def test_unreachable(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        download([Archive((tmp_path / "none.tgz").as_uri(), "", 0)], tmp_path / "home/data")


def test_is_free(tmp_path):
    assert is_free(tmp_path / "none")
    (tmp_path / "file").touch()
    assert not is_free(tmp_path / "file")
    assert not is_free(tmp_path)
