"""construct without its debugging aids, which load pdb: that takes longer than a small scan."""

from __future__ import annotations

import sys
from types import ModuleType

_AIDS = "construct.debug"
_wanted_by_others = _AIDS in sys.modules
sys.modules.setdefault(_AIDS, ModuleType(_AIDS))

import construct  # noqa: E402

if not _wanted_by_others:
    del sys.modules[_AIDS]

__all__ = ["construct"]
