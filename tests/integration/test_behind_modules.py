"""Anonymous memory right behind a module is a variable of it only if it is its .bss."""

from __future__ import annotations

import re

import pytest
from conftest import StartVictim
from scans import recording_of
from victims import build

from reachscan.grouping.join import join
from reachscan.naming.places import Places

PLACES = {
    "in .bss": r"^behind_modules\+in_bss\+0x1000 \(variable\)$",
    "behind .bss": "^anonymous memory 0x[0-9a-f]+-0x[0-9a-f]+, 0x40 into it$",
    "behind data": "^anonymous memory 0x[0-9a-f]+-0x[0-9a-f]+, 0x40 into it$",
}


@pytest.mark.parametrize("method", ["clone", "copy"])
def test_what_lies_behind_a_module(victim: StartVictim, method: str) -> None:
    module = build("only_data", ["-shared", "-fPIC", "-nostdlib"])
    target = victim("behind_modules", module)
    said = {}
    for scene in target.ready["scenes"]:
        recording = recording_of(target.pid, "--method", method, "--explain", scene["address"])
        joined = join(recording, root=None)
        assert hex(recording.chain[-1].slot) == scene["slot"]
        named = Places(recording._replace(names=joined.names), joined.space)
        said[scene["name"]] = named.of_reference(recording.chain[0]).text
    assert said.keys() == PLACES.keys()
    assert {n: place for n, place in said.items() if not re.search(PLACES[n], place)} == {}
