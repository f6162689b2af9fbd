"""The commands: each is the function `command` in a file of its name.

Nothing is imported here, so `--help` or one command does not load the others.
"""

SUMMARIES = {
    "scan": "Scan a running process (the default).",
    "core": "Scan a core file.",
    "report": "Report on a scan that was saved with --save.",
    "watch": "Scan again and again: what grows?",
    "diff": "Compare two scans: what grew?",
    "where": "Who allocates what a running process leaks?",
    "attach": "Start to record who allocates what in a running process.",
    "detach": "End that recording.",
    "run": "Start a command, and say who allocated what it leaks.",
    "heap": "Show what the live heap is made of.",
    "explain": "Show what a block is, and what keeps it.",
    "refs": "List what points to a block.",
}
"""The line of each command in `reachscan --help`, in order."""
