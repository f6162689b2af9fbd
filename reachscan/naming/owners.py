"""Which module each mapping of the target belongs to."""

from __future__ import annotations

from collections.abc import Sequence

from reachscan.recording import model

DELETED = " (deleted)"


def plain_path(path: str) -> str:
    """Return the path of a mapping without the mark for deleted files."""
    return path.removesuffix(DELETED)


def owners_of(mappings: Sequence[model.Mapping], modules: Sequence[model.Module]) -> list[str]:
    """Return the path of the module that each mapping belongs to, or ''."""
    executable = [m for m in mappings if m.permissions & model.EXECUTE]
    known = {plain_path(path) for path in [m.path for m in modules] + [m.path for m in executable]}
    known -= {path for path in known if not path.startswith("/") and path != "[vdso]"}
    owners: list[str] = []
    for i, mapping in enumerate(mappings):
        if i > 0 and _may_be_bss(mapping, mappings[i - 1]):
            owners.append(owners[-1] if mapping.permissions & model.WRITE else "")
        else:
            path = plain_path(mapping.path)
            owners.append(path if path in known else "")
    return owners


def _may_be_bss(mapping: model.Mapping, before: model.Mapping) -> bool:
    """Return whether a mapping is anonymous memory directly behind a module's writable data."""
    if mapping.path or mapping.permissions & model.APART or before.end != mapping.start:
        return False
    return bool(before.permissions & model.WRITE and before.path)
