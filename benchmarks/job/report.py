"""Renders how long whole programs take, as Markdown."""

from benchmarks.harness.report import cell, headline, machine_lines

_COLUMNS = {
    "wall_secs": ("wall, s", ".1f"),
    "ratio_to_baseline": ("ratio to {}", ".2f"),
    "import_secs": ("import, s", ".1f"),
    "after_import_secs": ("after the import, s", ".1f"),
    "after_import_ratio_to_baseline": ("ratio to {}", ".2f"),
    "cpu_secs": ("CPU, s", ".1f"),
    "peak_mb": ("memory, MB", ".0f"),
    "call_ms": ("a call, ms", ".2f"),
    "evaluations": ("evaluations", ".0f"),
    "exports": ("exports", ".0f"),
}


def render(report):
    """Return a report as Markdown: a table for each program."""
    lines = [headline(report), "", *machine_lines(report["machine"])]
    for program in report["programs"].values():
        contenders = program["contenders"]
        first = next(iter(contenders.values()))
        columns = {key: own for key, own in _COLUMNS.items() if key in first}
        heads = [title.format(report["baseline"]) for title, _ in columns.values()]
        rounds = len(first["wall_secs"]["rounds"])
        lines += [
            *("", f"### {program['title']}", ""),
            f"{rounds} round{'s' * (rounds != 1)}; median (lower to upper quartile).",
            "",
            f"| | {' | '.join(heads)} |",
            "|---" * (len(heads) + 1) + "|",
        ]
        for name, figures in contenders.items():
            cells = [cell(figures[key], form) for key, (_, form) in columns.items()]
            lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(lines) + "\n"
