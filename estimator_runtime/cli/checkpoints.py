"""`estimator-runtime checkpoints`: a model directory's inventory, as text or JSON."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

from estimator_runtime.checkpoint import cost, inventory
from estimator_runtime.cli.parser import Parser, number

_FIELDS = ("step", "path", "bytes", "own_bytes", "state", "reason")
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def add_to(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the parser of `checkpoints`."""
    parser = commands.add_parser(
        "checkpoints",
        help="list a training's checkpoints, and which one a restart would use",
        description="List the checkpoints of a training. Nothing is changed.\nThe exit "
        "status is 1 if a restart would not go on from the newest one, or has none.",
    )
    parser.set_defaults(describe=lambda options: describe(options, time.time()))
    parser.add_argument("model_dir", metavar="MODEL_DIR", help="folder of a training")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="read all data and check it; else the index, and the presence and size of "
        "the other files",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of a table"
    )
    parser.add_argument(
        "--mtbf-hours",
        metavar="HOURS",
        type=number(
            "the mean time between failures in hours, such as 24",
            lambda value: value > 0,
        ),
        help="advise how often to save, where a training fails once in so many hours "
        "on average, by what its checkpoints have cost so far",
    )


def describe(options: argparse.Namespace, now: float) -> tuple[str, int]:
    """Describe the checkpoints of a model directory.

    Args:
        options: The parsed options of `checkpoints`.
        now: The time in seconds since 1970.

    Returns:
        The text, and the exit status: 0 if a restart would resume from the newest
        checkpoint, else 1.

    Raises:
        CheckpointError: If there is nothing to show.
    """
    problem = None
    if options.verify:
        from estimator_runtime.checkpoint.tensor_bundle import checksums

        problem = checksums.problem
    found = inventory.take(options.model_dir, problem)
    costs = None if options.mtbf_hours is None else cost.read(options.model_dir)
    if options.json:
        shown = _as_json(found, now)
        if costs is not None:
            shown["advice"] = _advice_as_json(costs, options.mtbf_hours)
        text = json.dumps(shown, indent=2)
    else:
        lines = [*_as_text(found, now, options.verify)]
        if costs is not None:
            lines += _advice_as_text(costs, options.mtbf_hours)
        text = "\n".join(lines)
    return text, 0 if found.is_sound else 1


def _as_json(found: inventory.Inventory, now: float) -> dict[str, Any]:
    return {
        "model_dir": found.folder,
        "restart": None if found.restart is None else found.restart.path,
        "state_file": found.state_problem,
        "bytes": found.bytes,
        "checkpoints": [
            {name: getattr(each, name) for name in _FIELDS}
            | {"age_secs": round(max(0.0, now - each.saved_at), 3)}
            for each in found.entries
        ],
    }


def _as_text(
    found: inventory.Inventory, now: float, is_verified: bool
) -> Iterator[str]:
    """Return the lines of an inventory: a table, and what is to be said of all."""
    yield from _table(found, now, is_verified)
    graphs = found.bytes - sum(each.own_bytes for each in found.entries)
    if graphs > 0:
        yield f"in all {size(found.bytes)}, of which {size(graphs)} are graphs"
    elif len(found.entries) > 1:
        yield f"in all {size(found.bytes)}"
    if found.state_problem:
        remade = "; a restart makes it again" if found.restart is not None else ""
        yield f"{found.state_problem}{remade}"
    if found.restart is None:
        yield "no checkpoint can be used: a restart would stop with an error"
    elif not found.is_sound:
        newest: Any = found.newest  # not None: `restart` is a candidate for it
        yield f"a restart would not go on from the newest, of step {newest.step}"


def _table(found: inventory.Inventory, now: float, is_verified: bool) -> Iterator[str]:
    rows = [("step", "size", "age", "state")]
    for each in found.entries:
        step = "-" if each.step is None else str(each.step)
        state = _state(each, found, is_verified)
        rows.append((step, size(each.own_bytes), _age(now - each.saved_at), state))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        yield "  ".join((*map(str.rjust, row[:3], widths), row[3]))


def _state(
    entry: inventory.Entry, found: inventory.Inventory, is_verified: bool
) -> str:
    reason = entry.reason
    if is_verified and entry.state == inventory.GOOD:
        reason = "checksums right" if entry.is_read else "its data was not read"
    state = f"{entry.state}: {reason}" if reason else entry.state
    return f"{state}; a restart goes on from here" if entry is found.restart else state


def _advice_as_json(costs: cost.Costs, mtbf_hours: float) -> dict[str, Any]:
    mtbf_secs = mtbf_hours * 3600
    advised = costs.best_interval_secs(mtbf_secs)
    return {
        "mtbf_secs": mtbf_secs,
        "checkpoints_measured": costs.count,
        "blocked_secs": costs.blocked_secs,
        "write_secs": costs.write_secs,
        "interval_secs": costs.interval_secs,
        "advised_interval_secs": advised,
        "advised_lost_part": costs.lost_part(advised, mtbf_secs),
    }


def _advice_as_text(costs: cost.Costs, mtbf_hours: float) -> Iterator[str]:
    mtbf_secs = mtbf_hours * 3600
    yield (
        f"a checkpoint costs {costs.cost_secs:.3g} s: training waits "
        f"{costs.blocked_secs:.3g} s, the background writes {costs.write_secs:.3g} s "
        f"(medians of {costs.count})"
    )
    if costs.interval_secs:
        lost = costs.lost_part(costs.interval_secs, mtbf_secs)
        yield (
            f"saved every {costs.interval_secs:.3g} s, with a failure every "
            f"{mtbf_hours:g} h, {lost:.2%} of the time is lost, to checkpoints and to "
            "work done again"
        )
    advised = costs.best_interval_secs(mtbf_secs)
    yield (
        f"the least, {costs.lost_part(advised, mtbf_secs):.2%}, is lost with "
        f"RunConfig(save_checkpoints_secs={max(1, round(advised))})"
    )


def size(count: float) -> str:
    """Return a number of bytes as text, in decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _age(secs: float) -> str:
    """Return a duration as text, in the largest unit that gives 2 or more."""
    for unit, length in _UNITS:
        if secs >= 2 * length:
            return f"{secs / length:.0f} {unit}"
    return f"{max(0.0, secs):.0f} s"
