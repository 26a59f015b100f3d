"""Renders what a restart costs, and the memory of saving, as Markdown."""

from benchmarks.harness.measurement import spread
from benchmarks.harness.report import cell, headline, machine_lines

BASELINE = "none"


def render(report):
    """Return a report as Markdown: a row for each size and way."""
    lines = [
        *(headline(report), "", *machine_lines(report["machine"])),
        "",
        "Median (lower to upper quartile).",
        "",
        "| MB of variables | | restore, s | ratio to stock | CPU, s "
        "| peak memory of the restore, MB | saving: more than without, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for megabytes, figures in report["restarts"].items():
        stock = figures["restore"]["stock"]["secs"]
        without = figures["training"][BASELINE]["peak_mb"]
        for way, own in figures["restore"].items():
            saving = figures["training"][way]["peak_mb"]
            cells = [
                megabytes,
                way,
                cell(own["secs"], ".3f"),
                cell(_paired(own["secs"], stock, lambda a, b: a / b), ".2f"),
                cell(own["cpu_secs"], ".3f"),
                cell(own["peak_mb"], ".0f"),
                cell(_paired(saving, without, lambda a, b: a - b), ".0f"),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _paired(own, other, compare):
    """Compare two figures round by round."""
    pairs = zip(own["rounds"], other["rounds"], strict=True)
    return spread([compare(a, b) for a, b in pairs])
