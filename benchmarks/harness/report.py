"""Renders the figures of a report as Markdown."""

from benchmarks.harness.measurement import spread


def render(report, against=None):
    """Return a report's machine, and a table for each of its models, as Markdown.

    Args:
        report: What a benchmark's `measure` returned, or its JSON file.
        against: The contender to compare with; the report's baseline by default.

    Raises:
        KeyError: If there is no contender of that name.
    """
    against = against or report["baseline"]
    lines = [headline(report), "", *machine_lines(report["machine"])]
    for model in report["models"].values():
        lines += ["", f"### {model['title']}", "", *_table(model, against)]
        if "prices" in model:
            lines += ["", *_prices(model["prices"])]
        lines += _notes(model["contenders"])
    return "\n".join(lines) + "\n"


def headline(report):
    """Return the title of a report."""
    title = f"## {report['benchmark']}"
    return f"{title} (quick: the figures mean nothing)" if report["quick"] else title


def machine_lines(machine):
    """Return the lines that say where and with what it was measured."""
    packages = machine["packages"]
    versions = ", ".join(f"{k} {v}" for k, v in packages.items() if v is not None)
    gpus = "".join(f"{name}, " for name in machine.get("gpus", ()))
    return [
        f"{machine['date']}; {machine['cpu']}, {machine['cpus']} CPUs, {gpus}"
        f"{machine['memory_gb']} GB, load {machine['load_average_at_start']:.1f}; "
        f"{machine['system']}; Python {machine['python']}, {versions}, "
        f"estimator_runtime {machine['estimator_runtime']}."
    ]


def _table(model, against):
    contenders = model["contenders"]
    reference = contenders[against]["wall_us_per_step"]["rounds"]
    rounds = len(reference)
    of = f" of {model['batch_size']} examples" if "batch_size" in model else ""
    yield (
        f"{rounds} round{'s' * (rounds != 1)} of {model['measured_steps']} steps{of}; "
        "median (lower to upper quartile)."
    )
    yield ""
    has_server = "server_cpu_us_per_step" in contenders[against]
    server = " CPU µs/step of the ps |" if has_server else ""
    yield f"| | µs/step | ratio to {against} | CPU µs/step | steps/s |{server}"
    yield f"|---|---|---|---|---|{'---|' if server else ''}"
    for name, figures in contenders.items():
        own = figures["wall_us_per_step"]["rounds"]
        ratio = spread([a / b for a, b in zip(own, reference, strict=True)])
        cells = [
            name,
            cell(figures["wall_us_per_step"], ".0f"),
            cell(ratio, ".2f"),
            cell(figures["cpu_us_per_step"], ".0f"),
            f"{figures['steps_per_sec']['median']:.0f}",
        ]
        if has_server:
            cells.append(cell(figures["server_cpu_us_per_step"], ".0f"))
        yield f"| {' | '.join(cells)} |"


def _prices(prices):
    yield "| price of the log | µs/step | CPU µs/step |"
    yield "|---|---|---|"
    for name, price in prices.items():
        wall = cell(price["wall_us_per_step"], "+.1f")
        yield f"| {name} | {wall} | {cell(price['cpu_us_per_step'], '+.1f')} |"


def _notes(contenders):
    notes = [(name, note) for name, c in contenders.items() for note in c["notes"]]
    return ["", *(f"- {name}: {note}" for name, note in notes)] if notes else []


def cell(figure, form):
    """Return a median, with its quartiles in brackets."""
    median, q1, q3 = (format(figure[key], form) for key in ("median", "q1", "q3"))
    return f"{median} ({q1} to {q3})"
