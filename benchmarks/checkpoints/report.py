"""Renders what checkpoints cost, by size and cadence, as Markdown."""

from benchmarks.harness.measurement import spread
from benchmarks.harness.report import cell, headline, machine_lines

BASELINE = "none"


def render(report):
    """Return a report as Markdown: a table for each size."""
    lines = [headline(report), "", *machine_lines(report["machine"])]
    for megabytes, size in report["sizes"].items():
        lines += ["", f"### {megabytes} MB of variables", ""]
        lines += [
            f"{size['measured_saves']} saves in each round; median (lower to upper "
            "quartile).",
            "",
            "| every | | blocked ms | next step, ms more | lost in all, ms/save "
            "| CPU s/save | slowdown |",
            "|---|---|---|---|---|---|---|",
        ]
        for every, ways in size["cadences"].items():
            for way, figures in ways.items():
                if way == BASELINE:
                    continue
                secs = secs_between(int(every), ways)
                cells = [
                    f"{every} steps, {secs:.2g} s",
                    way,
                    cell(figures["blocked_ms"], ".2f"),
                    cell(figures["next_step_ms"], ".2f"),
                    cell(_lost_ms(int(every), figures, ways[BASELINE]), ".0f"),
                    cell(figures["cpu_secs_per_save"], ".3f"),
                    cell(figures["slowdown"], ".1%"),
                ]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def secs_between(every, ways):
    """Return the seconds that a cadence's steps take where nothing is saved."""
    return every / ways[BASELINE]["steps_per_sec"]["median"]


def _lost_ms(every, figures, none):
    """Return what one save took from the loop, whenever it did, in milliseconds."""
    rates = figures["steps_per_sec"]["rounds"], none["steps_per_sec"]["rounds"]
    both = zip(*rates, strict=True)
    return spread([1e3 * every * (1 / saving - 1 / free) for saving, free in both])
