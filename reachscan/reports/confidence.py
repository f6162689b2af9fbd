"""Names and explains the values of `Leaks.reason`: how certain it is that blocks are leaked."""

from __future__ import annotations

from reachscan.recording import model

NAMES: dict[int, str] = {
    model.ONE_PAST_THE_END: "one-past-the-end",
    model.TAGGED: "tagged-pointer",
    model.UNREADABLE_MEMORY: "unreadable-memory",
    model.CHANGED: "changed",
    model.SIGNAL_STACK: "signal-stack",
    model.MANGLED: "mangled-pointer",
    model.HELD_BY_KERNEL: "held-by-kernel",
    model.RELATIVE: "relative-pointer",
    model.UNALIGNED: "unaligned-pointer",
    model.NUMBER: "pointer-as-number",
    model.STALE_WORD: "stale-word",
    model.ALLOCATOR_BUSY: "allocator-busy",
    model.LOST_BEFORE: "lost-before",
    model.MAY_BE_FREE: "may-be-free",
}
"""Names of reasons in reports for programs; `DEFINITE` has none."""

_IN_WORDS: dict[int, str] = {
    model.ONE_PAST_THE_END: "there is a pointer to its very end, which may be meant for it",
    model.TAGGED: "there is a word that points to it if its other bits are left out",
    model.UNREADABLE_MEMORY: "memory that could not be read may point to it",
    model.CHANGED: "it changed between the scans, so something may use it",
    model.SIGNAL_STACK: "it may be a thread's stack for signal handlers; only the kernel knows",
    model.MANGLED: "there is a word that points to it if it was stored by setjmp()",
    model.HELD_BY_KERNEL: "the kernel may hold a pointer to it that cannot be read",
    model.RELATIVE: "there is a word that leads to it if a distance is added",
    model.UNALIGNED: "there is a pointer into it that is not aligned",
    model.NUMBER: "there is a number, of 32 bits or of a language runtime, that is its address",
    model.STALE_WORD: "only words that look stale point into it",
    model.ALLOCATOR_BUSY: "a thread was inside the allocator, and may have had it in hand",
    model.LOST_BEFORE: "an earlier scan found that nothing led to it; a word does now",
    model.MAY_BE_FREE: "it may be free: the allocator's caches of free blocks were not found",
}


def confidence(reason: int) -> str:
    """Return `definite` or `possible`."""
    return "definite" if reason == model.DEFINITE else "possible"


def in_words(reason: int) -> str:
    """Return why a block is only possibly leaked, as a sentence about it."""
    return _IN_WORDS[reason]
