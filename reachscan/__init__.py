"""Finds heap blocks of a running process that nothing points to any more."""

from typing import TYPE_CHECKING, Any

from reachscan.errors import ReachscanError

if TYPE_CHECKING:
    from reachscan.capture.options import ScanOptions
    from reachscan.result import BlockAnswer, HeapScan, LeakScan, ScanResult
    from reachscan.scanning import core, explain, heap, load, refs, scan

__version__ = "0.1.0"

__all__ = [
    "BlockAnswer",
    "HeapScan",
    "LeakScan",
    "ReachscanError",
    "ScanOptions",
    "ScanResult",
    "__version__",
    "core",
    "explain",
    "heap",
    "load",
    "refs",
    "scan",
]


def __getattr__(name: str) -> Any:
    """Import what does the work when it is first asked for: `reachscan --help` needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from reachscan import scanning

    return getattr(scanning, name)


def __dir__() -> list[str]:
    """Return what there is to be used, imported or not."""
    return __all__
