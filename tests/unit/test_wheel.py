"""The wheel that `make wheel` builds: which systems it is for, and why it runs on all of them."""

from __future__ import annotations

import io
import platform
import zipfile
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_E_MACHINE
from making import SMALL, make_wheel
from packaging.utils import parse_wheel_filename

from reachscan import __version__
from reachscan.recording.architectures import ARCHITECTURES

ROOT = Path(__file__).parents[2]
MACHINE = platform.machine()
MOST_BYTES = 1_000_000 if SMALL else 1_650_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(tmp_path_factory.mktemp("dist"))


def test_it_is_for_every_python_and_c_library(wheel: Path) -> None:
    name, version, _, tags = parse_wheel_filename(wheel.name)
    assert (name, str(version)) == ("reachscan", __version__)
    assert {(tag.interpreter, tag.abi) for tag in tags} == {("py3", "none")}
    platforms = {tag.platform for tag in tags}
    assert platforms == {
        f"{system}_{MACHINE}" for system in ("manylinux2014", "manylinux_2_17", "musllinux_1_1")
    }


def test_its_tags_are_those_of_its_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"reachscan-{__version__}.dist-info/WHEEL").decode()
    inside = {line.removeprefix("Tag: ") for line in text.splitlines() if line.startswith("Tag:")}
    assert inside == {str(tag) for tag in parse_wheel_filename(wheel.name)[3]}


def test_the_helper_in_it_needs_no_c_library(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = archive.getinfo("reachscan/_native/reachscan-helper")
        helper = ELFFile(io.BytesIO(archive.read(info)))
    assert info.external_attr >> 16 & 0o111 == 0o111
    kinds = {segment["p_type"] for segment in helper.iter_segments()}
    assert "PT_LOAD" in kinds and not kinds & {"PT_INTERP", "PT_DYNAMIC"}


def test_helpers_are_small(wheel: Path) -> None:
    """They are sent to devices. Streams of the standard library alone would add a megabyte."""
    with zipfile.ZipFile(wheel) as archive:
        sizes = {
            info.filename: info.file_size
            for info in archive.infolist()
            if info.filename.endswith("/reachscan-helper")
        }
    assert sizes
    assert {name: size for name, size in sizes.items() if size > MOST_BYTES} == {}


def test_helpers_for_other_processors_are_in_it(wheel: Path) -> None:
    built = sorted((ROOT / "reachscan/_native/helpers").glob("*/reachscan-helper"))
    built = [path for path in built if path.parent.name != MACHINE]
    if not built:
        pytest.skip("no helper for another processor is built here (make helpers)")
    with zipfile.ZipFile(wheel) as archive:
        for path in built:
            info = archive.getinfo(str(path.relative_to(ROOT)))
            assert info.external_attr >> 16 & 0o111 == 0o111
            assert archive.read(info) == path.read_bytes()
            machine = ELFFile(io.BytesIO(path.read_bytes()))["e_machine"]
            assert ENUM_E_MACHINE[machine] in ARCHITECTURES
            assert ARCHITECTURES[ENUM_E_MACHINE[machine]].name == path.parent.name


def test_all_of_the_package_is_in_it(wheel: Path) -> None:
    sources = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "reachscan").rglob("*.*")
        if path.parent.name != "__pycache__"
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert sources <= names
    assert f"reachscan-{__version__}.data/data/share/man/man1/reachscan.1" in names


def test_libreachscan_in_it_asks_for_no_version_of_a_c_library(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        library = ELFFile(io.BytesIO(archive.read("reachscan/_native/lib/libreachscan.so")))
    assert library.get_section_by_name(".gnu.version_r") is None
    (dynamic,) = library.iter_segments("PT_DYNAMIC")
    assert isinstance(dynamic, DynamicSegment)
    assert "DT_NEEDED" not in {tag.entry.d_tag for tag in dynamic.iter_tags()}
