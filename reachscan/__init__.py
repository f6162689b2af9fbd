"""Finds heap blocks of a running process that nothing points to any more."""

from reachscan.errors import ReachscanError
from reachscan.scan import Options, ScanResult, load, scan

__version__ = "0.1.0"

__all__ = ["Options", "ReachscanError", "ScanResult", "__version__", "load", "scan"]
