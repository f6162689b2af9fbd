"""Finds heap blocks in a running process that nothing points to any more."""

from typing import TYPE_CHECKING, Any

from reachscan.errors import ReachscanError

if TYPE_CHECKING:
    from reachscan.capture.options import ScanOptions
    from reachscan.history.comparison import diff
    from reachscan.recording.model import BlockState, Holder, Reason
    from reachscan.result import BlockAnswer, HeapScan, LeakScan, ScanResult
    from reachscan.scanning import core, explain, heap, load, refs, scan

__version__ = "0.1.0"

__all__ = [
    "BlockAnswer",
    "BlockState",
    "HeapScan",
    "Holder",
    "LeakScan",
    "ReachscanError",
    "Reason",
    "ScanOptions",
    "ScanResult",
    "__version__",
    "core",
    "diff",
    "explain",
    "heap",
    "load",
    "refs",
    "scan",
]

_HOMES = {
    "capture.options": ("ScanOptions",),
    "history.comparison": ("diff",),
    "recording.model": ("BlockState", "Holder", "Reason"),
    "result": ("BlockAnswer", "HeapScan", "LeakScan", "ScanResult"),
    "scanning": ("core", "explain", "heap", "load", "refs", "scan"),
}


def __getattr__(name: str) -> Any:
    """Import a name's module on first use: `reachscan --help` needs none of them."""
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, whether they are imported yet or not."""
    return __all__
