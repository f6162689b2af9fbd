"""Decides which groups of a scan count: those that no rule suppresses and no baseline contains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reachscan.grouping import folding
from reachscan.grouping.groups import Folding
from reachscan.history import census, comparison
from reachscan.history.census import Census
from reachscan.history.suppressions import Groups, Suppression, distinct_texts
from reachscan.judgement import COUNTS, KNOWN, SUPPRESSED, Review, Rule, Tally
from reachscan.recording import model
from reachscan.result import LeakScan


def review(
    result: LeakScan, suppressions: Sequence[Suppression], baseline: Census | None = None
) -> LeakScan:
    """Return the scan with a verdict on each group; groups that count come first.

    A group that has grown counts as a whole: which of its blocks are new is unknown.

    Args:
        result: the scan.
        suppressions: the rules; the first one that applies to a group suppresses it.
        baseline: earlier leaks, by kind.
    """
    groups = Groups(result.recording, result.folding)
    apart = distinct_texts(groups, suppressions)
    if apart.any():
        folded = folding.fold(result.folding.joined, result.recording.contents, apart)
        result, groups = result._replace(folded=folded), Groups(result.recording, folded)
    folded = result.folding
    rule, undecided = _rules(groups, suppressions)
    standing = np.where(rule >= 0, SUPPRESSED, COUNTS).astype(np.uint8)
    before: dict[str, Tally] = {}
    warnings = _stack_warning(result, suppressions) + _contents_warning(undecided)
    if baseline is not None:
        compared = comparison.compare(baseline, census.take(result, "this scan"))
        worse = {c.key for c in compared.changes if c.what in comparison.WORSE}
        keys = folding.keys(folded)
        known = [key in baseline.tallies and key not in worse for key in keys]
        standing[(standing == COUNTS) & np.array(known, bool)] = KNOWN
        before = {key: baseline.tallies[key] for key in worse & baseline.tallies.keys()}
        warnings += compared.warnings
    order = np.argsort(standing, kind="stable")
    judged = Review(
        standing=standing[order],
        rules=tuple(suppression.rule for suppression in suppressions),
        rule=rule[order],
        baseline=baseline.source if baseline else None,
        before=before,
        tallies=_tallies(folded, standing),
    )
    remarks = result.remarks + warnings
    return result._replace(folded=folded.reordered(order), review=judged, remarks=remarks)


def by_rule(result: LeakScan) -> list[tuple[Rule, int, Tally]]:
    """Return the rules that suppress anything, with their numbers of groups and amounts."""
    judged, folded = result.review, result.folding
    if judged is None:
        return []
    found = []
    for index in np.unique(judged.rule[judged.standing == SUPPRESSED]).tolist():
        chosen = judged.rule == index
        tally = _tally(folded, chosen)
        found.append((judged.rules[index], int(chosen.sum()), tally))
    return found


def _rules(
    groups: Groups, suppressions: Sequence[Suppression]
) -> tuple[model.Indexes, list[Suppression]]:
    """Return the index of the suppression that applies to each group, -1 if none does.

    Also return suppressions by text that may apply to blocks with unknown contents.
    """
    rule = np.full(groups.count, -1, np.int64)
    undecided = []
    for index, suppression in enumerate(suppressions if groups.count else ()):
        chosen = (rule < 0) & suppression.suppresses(groups)
        if groups.withheld and suppression.needs_contents:
            undecided += [suppression] * bool(chosen.any())
        else:
            rule[chosen] = index
    return rule, undecided


def _contents_warning(undecided: Sequence[Suppression]) -> tuple[model.Warning, ...]:
    if not undecided:
        return ()
    message = (
        f"{undecided[0].rule.source} suppresses blocks by the text that they hold, which this scan "
        "has not kept: they count. Scan with --contents 1 or more to keep it"
    )
    return (model.Warning("suppression-needs-contents", message),)


def _stack_warning(
    result: LeakScan, suppressions: Sequence[Suppression]
) -> tuple[model.Warning, ...]:
    places = [s.rule.source for s in suppressions if s.needs_stack]
    recording = result.recording
    if not places or recording.recorder is not None or recording.origins is not None:
        return ()
    message = (
        f"{len(places)} rules (the first is {places[0]}) tell which stack allocates, which is not "
        "known of a process that is not recorded: they suppress nothing. Use type, key, signature, "
        "module, symbol or size instead"
    )
    return (model.Warning("suppression-needs-stacks", message),)


def _tallies(folded: Folding, standing: NDArray[np.uint8]) -> tuple[Tally, Tally, Tally]:
    counts, known, suppressed = (_tally(folded, standing == which) for which in range(3))
    return counts, known, suppressed


def _tally(folded: Folding, chosen: model.Flags) -> Tally:
    blocks = folded.allocations[chosen].sum() + folded.indirect_allocations[chosen].sum()
    amount = folded.bytes[chosen].sum() + folded.indirect_bytes[chosen].sum()
    return Tally(int(blocks), int(amount))
