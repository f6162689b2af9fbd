"""Places of roots, and the answers that name them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import streams
from hypothesis import given
from hypothesis import strategies as st
from streams import BSS, CONSTANTS, DATA, HEAP_START, LIBRARY_PATH, Leak, Stream

import reachscan
from reachscan import errors, scanning
from reachscan.naming.memory_map import AddressSpace
from reachscan.naming.places import Places
from reachscan.recording import model, wire
from reachscan.recording.architectures import AARCH64, ARCHITECTURES, X86_64
from reachscan.recording.decode import decode
from reachscan.recording.zip_equal import zip_equal
from reachscan.reports import DEFAULT_WIDTH, EXPLAIN, Selection, lines

STACK, OTHER_STACK, MAPPED = 0x7FFF_0000_0000, 0x7F20_0000_0000, 0x7F30_0000_0000
TOP = OTHER_STACK + 0x1F000
MAPPINGS = (
    *streams.MAPPINGS,
    model.Mapping(OTHER_STACK, OTHER_STACK + 0x20000, 0, 0, 3, ""),
    model.Mapping(MAPPED, MAPPED + 0x1000, 0x5000, 9, 3 | model.SHARED, "/tmp/queue"),
    model.Mapping(STACK, STACK + 0x20000, 0, 0, 3, "[stack]"),
)
MAIN = {**streams.THREAD, "stack_pointer": STACK + 0x1000, "thread_pointer": MAPPED + 0x740}
WORKER = {
    "tid": 4712,
    "stack_pointer": OTHER_STACK + 0x8000,
    "program_counter": 0,
    "thread_pointer": TOP,
    "name": "worker",
}
SCHEMA = Path(reachscan.__file__).parent / "schema"


def recording(
    *,
    block: model.Block | None = None,
    chain: Iterable[model.Reference] = (),
    references: Iterable[model.Reference] = (),
    names: dict[int, model.Name] | None = None,
    owners: Iterable[model.WordOwner] = (),
    worker: dict[str, Any] = WORKER,
    more: bytes = b"",
    **stream: Any,
) -> bytes:
    extra = wire.encode(wire.THREADS, [worker])
    if block:
        extra += wire.encode(wire.BLOCK, block._asdict())
    extra += wire.encode(wire.CHAIN, [link._asdict() for link in chain])
    extra += wire.encode(wire.REFERENCES, [reference._asdict() for reference in references])
    extra += wire.encode(wire.WORD_OWNERS, [owner._asdict() for owner in owners])
    return Stream(mappings=MAPPINGS, names=names or {}, extra=extra + more, **stream).encoded()


def places(machine: int = X86_64, main: dict[str, Any] = MAIN, **layout: Any) -> Places:
    decoded = decode(wire.frames(io.BytesIO(recording(**layout))))
    space = AddressSpace.of(decoded)
    threads = (model.Thread(**main), *decoded.threads[1:])
    return Places(decoded._replace(threads=threads, machine=machine), space)


@pytest.mark.parametrize(
    ("address", "kind", "text"),
    [
        (DATA + 8, "module", "libexample.so.1+counter+0x4 (variable)"),
        (BSS + 0x10, "module", "libexample.so.1+0x4010 (variable)"),
        (CONSTANTS, "module", "libexample.so.1+0x2000 (constant)"),
        (STACK + 0x1048, "stack", "stack of thread 4711 'main', 0x48 above its stack pointer"),
        (STACK + 0xFF8, "stack", "stack of thread 4711 'main', 0x8 below its stack pointer"),
        (STACK + 0x10, "mapping", f"[stack] {STACK:#x}-{STACK + 0x20000:#x}, 0x10 into it"),
        (TOP - 0x100, "stack", "stack of thread 4712 'worker', 0x16f00 above its stack pointer"),
        (TOP + 0x310, "thread", "descriptor of thread 4712 'worker', 0x310 into it"),
        (TOP - 8, "thread", "thread-local variable victim+per_thread of thread 4712 'worker'"),
        (
            TOP - 16,
            "thread",
            "thread-local storage, 0x10 below the thread pointer, of thread 4712 'worker'",
        ),
        (
            MAPPED + 0x10,
            "mapping",
            f"shared mapping of /tmp/queue {MAPPED:#x}-{MAPPED + 0x1000:#x}, 0x10 into it",
        ),
        (0x1000, "nowhere", "no mapping"),
    ],
)
def test_places_in_memory(address: int, kind: str, text: str) -> None:
    names = {
        DATA + 8: model.Name(LIBRARY_PATH, "counter", 4),
        TOP - 8: model.Name("/usr/bin/victim", "per_thread", 0),
        TOP - 16: model.Name("", "thread-local storage", 16),
    }
    place = places(names=names).of_address(address)
    assert (place.kind, place.text) == (kind, text)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (TOP - 0x40, "descriptor of thread 4712 'worker', 0x40 before its end"),
        (TOP + 16, "thread-local variable victim+per_thread of thread 4712 'worker'"),
        (
            TOP + 32,
            "thread-local storage, 0x20 above the thread pointer, of thread 4712 'worker'",
        ),
    ],
)
def test_thread_local_variables_above_the_thread_pointer(address: int, text: str) -> None:
    names = {
        TOP + 16: model.Name("/usr/bin/victim", "per_thread", 0),
        TOP + 32: model.Name("", "thread-local storage", 32),
    }
    assert places(machine=AARCH64, names=names).of_address(address).text == text


def test_registers_of_aarch64() -> None:
    register = ARCHITECTURES[AARCH64].register
    assert [register(position) for position in (0, 30, 31, 34)] == [
        *("register x0", "register x30", "register sp", "register tpidr_el0")
    ]
    vectors = len(ARCHITECTURES[AARCH64].registers)
    assert register(vectors + 11) == "register v5"


def test_the_stack_of_a_thread_that_runs_on_another_one() -> None:
    elsewhere = {**WORKER, "stack_pointer": MAPPED + 0x100}
    place = places(worker=elsewhere).of_address(TOP - 0x200)
    assert place.text == "first stack of thread 4712 'worker', 0x200 below its thread pointer"


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (OTHER_STACK + 0x2010, "'worker', 0x10 above"),
        (OTHER_STACK + 0x9010, "'main', 0x10 above"),
    ],
)
def test_stacks_that_share_a_mapping(address: int, text: str) -> None:
    lower = {**WORKER, "stack_pointer": OTHER_STACK + 0x2000}
    upper = {**MAIN, "stack_pointer": OTHER_STACK + 0x9000}
    assert text in places(worker=lower, main=upper).of_address(address).text


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (0, "register r15 of thread 4711 'main'"),
        (5, "register rbx of thread 4711 'main'"),
        (27 + (160 + 5 * 16) // 8, "register xmm5 of thread 4711 'main'"),
        (27 + (576 + 6 * 16 + 8) // 8, "upper half of register ymm6 of thread 4711 'main'"),
        (27 + 2, "a vector register of thread 4711 'main'"),
        (27 + (32 + 3 * 16) // 8, "register st(3) or mm3 of thread 4711 'main'"),
        (200, "register r15 of thread 99"),
        (300, "the kernel (an epoll event, a timer or a pending signal)"),
        (9999, "a register"),
    ],
)
def test_words_that_lie_in_no_memory(index: int, text: str) -> None:
    owners = [
        model.WordOwner(0, 200, 4711),
        model.WordOwner(200, 100, 99),
        model.WordOwner(300, 2, 0),
    ]
    word = model.Reference(0, HEAP_START, model.ROOT_WORD, index, 0, 0)
    assert places(owners=owners).of_reference(word).text == text


@given(st.integers(0, 2**64 - 1))
def test_every_address_has_a_place(address: int) -> None:
    assert places().of_address(address).text


def answer(tmp_path: Path, format_: str = "text", limit: int = 20, **layout: Any) -> list[str]:
    path = tmp_path / "answer.rsc"
    path.write_bytes(recording(**layout))
    selection = Selection(limit=limit)
    rows = list(map(str, lines(EXPLAIN, format_, scanning.load(path), selection)))
    if format_ == "json":
        schema = json.loads((SCHEMA / "block-v1.json").read_text())
        jsonschema.validate(json.loads("\n".join(rows)), schema)
    return rows


START = HEAP_START + 0x100
LIVE = model.Block(START + 8, START, 24, model.REACHABLE, 2)
ROOT = model.Reference(DATA, HEAP_START + 0x10, model.ROOT_MEMORY, 0, 0, 0)
LINK = model.Reference(
    HEAP_START + 0x20, START + 4, model.REACHABLE_BLOCK, 0, HEAP_START + 0x10, 56
)
NODES = [
    (1, 56, 56, HEAP_START + 0x10, 0, model.LIST_NODE, [HEAP_START, HEAP_START]),
    (1, 24, 24, START, 2, 0, [CONSTANTS]),
]
TYPES = {CONSTANTS: "N4shop7SessionE"}


def test_a_live_block_is_explained(tmp_path: Path) -> None:
    names = {DATA: model.Name(LIBRARY_PATH, "sessions", 0)}
    rows = answer(tmp_path, block=LIVE, chain=[ROOT, LINK], names=names, kinds=NODES, types=TYPES)
    verdict = f"{START + 8:#x} is in a block of 24 bytes, 0x8 into it; it is live: the program"
    assert rows[0] == f"victim (pid 4711): {verdict}"
    assert "  what    shop::Session" in rows
    assert f"  where   arena 2, in [heap] {HEAP_START:#x}-{streams.HEAP_END:#x}" in rows
    assert rows[-3:] == [
        f"  libexample.so.1+sessions (variable), at {DATA:#x}",
        f"             -> block {HEAP_START + 0x10:#x}, 56 bytes: list node: link | link | zero "
        "| zero",
        f"       +0x10 -> 0x4 into block {START:#x}, 24 bytes: shop::Session",
    ]


def test_a_leaked_block_is_explained_by_what_owns_it(tmp_path: Path) -> None:
    leaks = [Leak(120, [CONSTANTS], below=[40, 24])]
    head = HEAP_START + 0x10
    below = head + 136
    lost = model.Block(below, below, 40, model.LEAKED, 0)
    rows = answer(tmp_path, block=lost, leaks=leaks, types=TYPES, shapes=[0, 1, 0])
    assert rows[-3:] == [
        "it hangs below a leaked block:",
        f"  block {head:#x}, 120 bytes: shop::Session",
        f"             -> block {below:#x}, 40 bytes: tree node",
    ]
    unsure = answer(tmp_path, block=lost, leaks=leaks, doubts=[(0, 3, model.TAGGED)])
    assert "it is possibly leaked: there is a word" in " ".join(unsure[0:2])
    direct = model.Block(head, head, 120, model.LEAKED, 0)
    rows = answer(tmp_path, block=direct, leaks=leaks, types=TYPES)
    assert rows[-1].endswith("it is a direct leak")


def test_a_word_in_another_form_is_told(tmp_path: Path) -> None:
    leaks = [Leak(120, [CONSTANTS], below=[40])]
    head = HEAP_START + 0x10
    block = model.Block(head + 136, head + 136, 40, model.LEAKED, 0)
    seen = {"form": model.RELATIVE, "about": head, **LINK._asdict()}
    extra = wire.encode(wire.SIGHTINGS, [seen])
    layout: Any = {"block": block, "leaks": leaks, "doubts": [(0, 2, model.RELATIVE)]}
    rows = answer(tmp_path, **layout, more=extra)
    assert f"a word in another form that means its owner {head:#x} (relative-pointer):" in rows
    assert rows[-1].startswith("  0x10 into block") or rows[-2].startswith("  0x10 into block")
    document = json.loads("\n".join(answer(tmp_path, "json", **layout, more=extra)))
    assert document["sightings"][0]["form"] == document["reason"] == "relative-pointer"
    assert document["sightings"][0]["about"] == hex(head)
    rows = answer(tmp_path, "logfmt", **layout, more=extra)
    assert any("event=sighting" in row for row in rows)
    strange = wire.encode(wire.SIGHTINGS, [{**seen, "form": 99}])
    with pytest.raises(errors.StreamError, match="unknown form"):
        answer(tmp_path, **layout, more=strange)


def test_what_is_no_block_is_told_too(tmp_path: Path) -> None:
    free = model.Block(START, 0, 0, model.NOT_LIVE, 0)
    assert "is free memory of the heap" in answer(tmp_path, block=free)[0]
    variable = model.Block(DATA, 0, 0, model.NO_HEAP, 0)
    rows = answer(tmp_path, block=variable)
    assert "is no heap memory" in rows[0]
    assert rows[-1] == "  where   libexample.so.1+0x3000 (variable)"


def test_an_address_without_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.NoSuchAddressError, match="0x10 is in no mapping of victim"):
        answer(tmp_path, block=model.Block(0x10, 0, 0, model.NO_HEAP, 0))


def test_references_are_listed_as_far_as_is_wanted(tmp_path: Path) -> None:
    lost = LINK._replace(holder=model.LEAKED_BLOCK)
    rows = answer(tmp_path, block=LIVE, references=[ROOT, LINK, lost], kinds=NODES)
    assert "3 words point to it:" in rows
    assert rows[-2].startswith(f"  0x10 into block {HEAP_START + 0x10:#x}, 56 bytes: list node")
    assert any("(leaked)" in row for row in rows[-2:])
    rows = answer(tmp_path, limit=1, block=LIVE, references=[ROOT, LINK, lost])
    assert rows[-1] == "  and 2 more, shown by --limit 3"


def test_long_chains_are_shortened_in_the_middle(tmp_path: Path) -> None:
    nodes = [HEAP_START + 0x1000 + 64 * i for i in range(1000)]
    links = [
        model.Reference(a, b, model.REACHABLE_BLOCK, 0, a, 56)
        for a, b in zip_equal(nodes, [*nodes[1:], START])
    ]
    chain = [ROOT._replace(value=nodes[0]), *links]
    rows = answer(tmp_path, block=LIVE, chain=chain)
    assert sum("-> block" in row for row in rows) + 982 == 1001
    assert f"{'':>12}... 982 more blocks on the way, told by --json" in rows
    document = json.loads("\n".join(answer(tmp_path, "json", block=LIVE, chain=chain)))
    assert len(document["chain"]) == 1001


@pytest.mark.parametrize("format_", ["text", "json", "logfmt"])
def test_hostile_names_do_no_harm(tmp_path: Path, format_: str) -> None:
    evil = "\x1b[2Jevil\nname"
    names = {DATA: model.Name(f"/lib/{evil}", evil, 0)}
    rows = answer(tmp_path, format_, block=LIVE, chain=[ROOT, LINK], names=names, name=evil)
    for row in rows:
        assert "\x1b" not in row
    if format_ == "text":
        assert all(len(row) <= DEFAULT_WIDTH for row in rows)


def test_a_machine_reads_what_a_person_reads(tmp_path: Path) -> None:
    given_: dict[str, Any] = {
        "block": LIVE,
        "chain": [ROOT, LINK],
        "references": [LINK],
        "kinds": NODES,
    }
    document = json.loads("\n".join(answer(tmp_path, "json", **given_, types=TYPES)))
    assert document["asked"] == hex(START + 8)
    assert (document["state"], document["confidence"]) == ("live", None)
    assert document["block"]["type"] == "shop::Session"
    root, link = document["chain"]
    assert (root["holder"], root["kind"], root["block"]) == ("memory", "module", None)
    assert link["block"]["shape"] == "list node"
    assert document["references"] == [link]
    rows = answer(tmp_path, "logfmt", **given_, types=TYPES)
    assert [row.split()[0] for row in rows] == [
        "event=block",
        "event=link",
        "event=link",
        "event=reference",
    ]
