"""The recorder's stacks: a program knows how each of its blocks was allocated, and compares."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import victims

from reachscan.capture.launch import RECORDER
from reachscan.capture.recording_options import VARIABLE, RecordingOptions

FLAGS = ("-std=c++20", f"-I{victims.REPOSITORY / 'native'}", "-pthread", "-ldl")
MUSL = Path("/usr/lib/x86_64-linux-musl/musl-gcc.specs")
WITHOUT_RUNTIME = (
    *("-DWITHOUT_CXX_LIBRARY", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"),
    *("-nodefaultlibs", "-lpthread", "-ldl", "-lc", "-lgcc"),
)
STATIC_RUNTIME = ("-static-libstdc++", "-static-libgcc")


def settings(options: RecordingOptions) -> str:
    """Return what tells the recorder so, with nobody who waits for the end of the program."""
    return options.settings(0, "")


def run(command: Sequence[object], options: RecordingOptions) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, "LD_PRELOAD": str(RECORDER), VARIABLE: settings(options)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def libraries(*flags: str) -> list[Path]:
    """Return two libraries that differ, each with a function of the same name."""
    return [
        victims.build("known_stacks_plugin", ("-shared", "-fPIC", f"-DPADDING={padding}", *flags))
        for padding in (16, 64)
    ]


@pytest.mark.parametrize(
    "flags",
    [
        ("-fomit-frame-pointer",),
        ("-fno-omit-frame-pointer",),
        ("-O0", "-g"),
        ("-Os",),
        ("-O3", "-no-pie"),
        STATIC_RUNTIME,
    ],
    ids=" ".join,
)
def test_stacks_are_those_of_the_calls(flags: Sequence[str]) -> None:
    program = victims.build("known_stacks", (*FLAGS, *flags))
    said = run([program, *libraries()], RecordingOptions(depth=64))
    assert "\nok depth 300, 64 frames\n" in said


def test_stacks_are_cut_at_the_depth() -> None:
    program = victims.build("known_stacks", FLAGS)
    said = run([program, *libraries()], RecordingOptions())
    assert "\nok depth 300, 32 frames\n" in said


@pytest.mark.skipif(not shutil.which("clang++"), reason="there is no clang++: apt install clang")
def test_stacks_of_a_program_by_clang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "clang++")
    program = victims.build("known_stacks", FLAGS)
    run([program, *libraries()], RecordingOptions(depth=64))


@pytest.mark.parametrize("suite", ["bullseye", "trixie", "sid"])
def test_stacks_on_other_c_libraries(suite: str) -> None:
    # That of C++ belongs to the C library of this machine.
    command = victims.command_on(suite, "known_stacks", (*FLAGS, *WITHOUT_RUNTIME))
    run([*command, *libraries()], RecordingOptions(depth=64))


@pytest.mark.skipif(not MUSL.exists(), reason="there is no musl: apt install musl-tools")
def test_stacks_on_musl(tmp_path: Path) -> None:
    # The headers of the C++ library belong to glibc.
    (tmp_path / "cstddef").write_text("#include <stddef.h>\nnamespace std { using ::size_t; }\n")
    types = [f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    usings = "".join(f"using ::{name};" for name in types)
    (tmp_path / "cstdint").write_text(f"#include <stdint.h>\nnamespace std {{ {usings} }}\n")
    # What Alpine's compiler passes, and Debian's wrapper forgets.
    musl = ("-specs", str(MUSL), "-Wl,--eh-frame-hdr")
    flags = (*musl, f"-I{tmp_path}", "-D_GNU_SOURCE", *FLAGS, *WITHOUT_RUNTIME)
    plugins = [
        victims.build("known_stacks_plugin", (*musl, "-shared", "-fPIC", f"-DPADDING={padding}"))
        for padding in (16, 64)
    ]
    run([victims.build("known_stacks", flags), *plugins], RecordingOptions(depth=64))


def test_frame_pointers_are_followed_as_far_as_there_are_some() -> None:
    """What has none ends the stack: it is shorter then, but each frame is one of the calls."""
    program = victims.build("known_stacks", (*FLAGS, "-fno-omit-frame-pointer"))
    options = RecordingOptions(depth=64, stacks="frame-pointers")
    done = subprocess.run(
        [str(program)],
        env={**os.environ, "LD_PRELOAD": str(RECORDER), VARIABLE: settings(options)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "\nok depth 300, 64 frames\n" in done.stdout
    assert ": a frame is " not in done.stdout


@pytest.mark.parametrize("flags", [("-O2",), ("-O0", "-g")], ids=" ".join)
def test_instrumented_functions_tell_of_their_calls(flags: Sequence[str]) -> None:
    instrumented = "-finstrument-functions"
    program = victims.build("known_stacks", (*FLAGS, *flags, instrumented, "-DINSTRUMENTED"))
    run(
        [program, *libraries(instrumented)],
        RecordingOptions(depth=64, stacks="instrumented"),
    )
