"""Renders what checkpoints cost, by size and cadence, as Markdown."""

from benchmarks.report import cell, headline, machine_lines

BASELINE = "none"


def render(report):
    """Give a report as Markdown: a table for each size."""
    lines = [headline(report), "", *machine_lines(report["machine"])]
    for megabytes, size in report["sizes"].items():
        lines += ["", f"### {megabytes} MB of variables", ""]
        lines += [
            f"{size['measured_saves']} saves in each round; median (lower to upper "
            "quartile).",
            "",
            "| every | | blocked ms | next step, ms more | CPU s/save | slowdown |",
            "|---|---|---|---|---|---|",
        ]
        for every, ways in size["cadences"].items():
            for way, figures in ways.items():
                if way == BASELINE:
                    continue
                cells = [
                    f"{every} steps",
                    way,
                    cell(figures["blocked_ms"], ".2f"),
                    cell(figures["next_step_ms"], ".2f"),
                    cell(figures["cpu_secs_per_save"], ".3f"),
                    cell(figures["slowdown"], ".1%"),
                ]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
