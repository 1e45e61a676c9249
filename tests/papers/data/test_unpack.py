import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from exhume.errors import ExhumeError
from exhume_papers.data.unpack import BadArchive, unpack


def tar_of(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def zip_of(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def make(kind: str, path: Path, members: dict[str, bytes]) -> Path:
    return zip_of(path, members) if kind == "zip" else tar_of(path, members)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder inside tmp_path, so that an escape would be seen beside it."""
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_the_folder_of_an_archive_is_put_in_place(home: Path, kind: str) -> None:
    archive = make(kind, home / "archive", {"set/a.txt": b"A", "set/sub/b.txt": b"B"})
    unpack(archive, kind, home / "set")
    assert (home / "set" / "sub" / "b.txt").read_bytes() == b"B"
    assert sorted(path.name for path in home.iterdir()) == ["archive", "set"]


def test_an_empty_folder_of_that_name_makes_way(home: Path) -> None:
    (home / "set").mkdir()
    unpack(zip_of(home / "archive", {"set/a.txt": b"A"}), "zip", home / "set")
    assert (home / "set" / "a.txt").exists()


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
@pytest.mark.parametrize("name", ["../evil", "set/../../evil"])
def test_a_hostile_member_is_refused_and_leaves_nothing(home: Path, kind: str, name: str) -> None:
    archive = make(kind, home / "archive", {"set/a.txt": b"A", name: b"E"})
    with pytest.raises(BadArchive, match=r"expected members inside .* found '.*evil'; refused"):
        unpack(archive, kind, home / "set")
    assert [path.name for path in home.iterdir()] == ["archive"]
    assert [path.name for path in home.parent.iterdir()] == ["home"]


def test_a_link_out_of_the_folder_is_refused(home: Path) -> None:
    with tarfile.open(home / "archive", "w:gz") as archive:
        link = tarfile.TarInfo("set/link")
        link.type, link.linkname = tarfile.SYMTYPE, "../../../outside"
        archive.addfile(link)
    with pytest.raises(BadArchive, match=r"refused"):
        unpack(home / "archive", "tar.gz", home / "set")
    assert [path.name for path in home.iterdir()] == ["archive"]


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
@pytest.mark.parametrize("keep", [0, 40, -30])
def test_a_damaged_archive_leaves_nothing(home: Path, kind: str, keep: int) -> None:
    archive = make(kind, home / "archive", {"set/a.txt": bytes(range(256)) * 50})
    archive.write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(BadArchive, match=r"expected a sound .* archive in archive, found: ."):
        unpack(archive, kind, home / "set")
    assert [path.name for path in home.iterdir()] == ["archive"]


def test_an_archive_of_something_else_is_refused(home: Path) -> None:
    with pytest.raises(BadArchive, match=r"expected the folder set in archive, found other"):
        unpack(zip_of(home / "archive", {"other/a.txt": b"A"}), "zip", home / "set")


def test_a_disk_that_cannot_be_written_is_not_the_archives_fault(home: Path) -> None:
    archive = zip_of(home / "archive", {"set/a.txt": b"A"})
    with pytest.raises(ExhumeError, match=r"expected room to unpack") as caught:
        unpack(archive, "zip", home / "missing" / "set")
    assert not isinstance(caught.value, BadArchive)
