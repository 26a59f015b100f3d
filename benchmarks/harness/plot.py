"""Draws a report: the cost of a step by contender, of saving, of whole programs."""

import matplotlib
from matplotlib import pyplot

from benchmarks.checkpoints import report as checkpoints_report

matplotlib.use("Agg")  # into a file, on machines without a screen too

_COLORS = {"ours": "#1b6ca8", "stock": "#444444", "others": "#b8b8b8"}
_PERCENT = (0, 1, 10, 100, 1000, 10_000)
_OURS = ("plans", "fused", "ours", "reuse", "predictor")


def draw(report, path):
    """Draw `report` as a PNG file at `path`: medians, with quartiles as whiskers."""
    if "sizes" in report:
        figure = _of_sizes(report)
    elif "programs" in report:
        figure = _of_programs(report)
    else:
        figure = _of_models(report)
    figure.suptitle(_caption(report), fontsize=9, x=0.01, ha="left")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _of_models(report):
    models = report["models"]
    rows = [len(model["contenders"]) for model in models.values()]
    figure, all_axes = pyplot.subplots(
        len(models),
        squeeze=False,
        figsize=(8, 1 + 0.28 * sum(rows) + 0.8 * len(rows)),
        height_ratios=rows,
        layout="constrained",
    )
    for axes, model in zip(all_axes[:, 0], models.values(), strict=True):
        _bars(axes, model["contenders"])
        axes.set_title(model["title"], loc="left", fontsize=10)
    all_axes[-1, 0].set_xlabel("microseconds a step; whiskers: quartiles")
    return figure


def _of_sizes(report):
    """Draw what the whole loop loses against the time between two checkpoints."""
    sizes = report["sizes"]
    figure, all_axes = pyplot.subplots(
        1,
        len(sizes),
        squeeze=False,
        figsize=(1 + 3 * len(sizes), 4),
        layout="constrained",
    )
    for axes, (megabytes, size) in zip(all_axes[0], sizes.items(), strict=True):
        secs = [
            checkpoints_report.secs_between(int(every), ways)
            for every, ways in size["cadences"].items()
        ]
        for way in ("stock", "ours"):
            losses = [ways[way]["slowdown"] for ways in size["cadences"].values()]
            medians = [100 * loss["median"] for loss in losses]
            whiskers = [
                [100 * (loss["median"] - loss["q1"]) for loss in losses],
                [100 * (loss["q3"] - loss["median"]) for loss in losses],
            ]
            axes.errorbar(
                secs, medians, whiskers, color=_color(way), label=way, capsize=2
            )
        axes.set_xscale("log")
        axes.set_xticks(secs, [f"{each:.2g}" for each in secs])
        axes.set_xticks([], minor=True)
        axes.set_yscale("symlog", linthresh=1)  # noise may be below nothing
        axes.set_yticks(_PERCENT, [f"{each:g}" for each in _PERCENT])
        axes.set_ylim(min(0, *medians), _PERCENT[-1])
        axes.set_title(f"{megabytes} MB", loc="left", fontsize=10)
        axes.set_xlabel("seconds from save to save")
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[0, 0].set_ylabel("slowdown of the loop, %; whiskers: quartiles")
    all_axes[0, 0].legend(frameon=False)
    return figure


def _of_programs(report):
    """Draw the time of each program, in two parts: the import and what follows."""
    programs = report["programs"]
    rows = [len(program["contenders"]) for program in programs.values()]
    figure, all_axes = pyplot.subplots(
        len(programs),
        squeeze=False,
        figsize=(8, 1 + 0.28 * sum(rows) + 0.8 * len(rows)),
        height_ratios=rows,
        layout="constrained",
    )
    for axes, program in zip(all_axes[:, 0], programs.values(), strict=True):
        contenders = program["contenders"]
        for row, (name, figures) in enumerate(contenders.items()):
            wall, imported = figures["wall_secs"], figures["import_secs"]["median"]
            after = figures["after_import_secs"]["median"]
            ratio = figures["after_import_ratio_to_baseline"]["median"]
            axes.barh(row, wall["median"], color=_color(name))
            axes.barh(row, imported, color="white", alpha=0.6, hatch="///")
            axes.errorbar(
                *(wall["median"], row),
                xerr=[[wall["median"] - wall["q1"]], [wall["q3"] - wall["median"]]],
                color="black",
                elinewidth=1,
                capsize=2,
            )
            label = f" {after:.1f} s after the import, ratio {ratio:.2f}"
            axes.text(wall["q3"], row, label, va="center", fontsize=8)
        axes.set_yticks(range(len(contenders)), list(contenders))
        axes.margins(x=0.35)
        axes.set_xlim(left=0)
        axes.invert_yaxis()  # the first contender on top
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(program["title"], loc="left", fontsize=10)
    all_axes[-1, 0].set_xlabel(
        "seconds from the command to the exit; hatched: the import; whiskers: quartiles"
    )
    return figure


def _bars(axes, contenders):
    names = list(contenders)
    figures = [contenders[name]["wall_us_per_step"] for name in names]
    medians = [figure["median"] for figure in figures]
    whiskers = [
        [figure["median"] - figure["q1"] for figure in figures],
        [figure["q3"] - figure["median"] for figure in figures],
    ]
    axes.barh(
        names,
        medians,
        xerr=whiskers,
        color=[_color(name) for name in names],
        error_kw={"elinewidth": 1, "capsize": 2},
    )
    for row, (name, figure) in enumerate(zip(names, figures, strict=True)):
        ratio = contenders[name]["ratio_to_baseline"]["median"]
        label = f" {figure['median']:.0f} µs, ratio {ratio:.2f}"
        axes.text(figure["q3"], row, label, va="center", fontsize=8)
    axes.margins(x=0.25)
    axes.invert_yaxis()  # the first contender on top
    axes.spines[["top", "right"]].set_visible(False)


def _color(name):
    if name.startswith(_OURS):
        return _COLORS["ours"]
    return _COLORS["stock" if name.startswith("stock") else "others"]


def _caption(report):
    machine = report["machine"]
    quick = " (quick: the figures mean nothing)" if report["quick"] else ""
    of = " ".join(report.get("script", ())) or f"ratio: to {report['baseline']}"
    return (
        f"{report['benchmark']}{quick}; {of}\n"
        f"{machine['cpu']}, {machine['cpus']} CPUs, "
        f"TensorFlow {machine['packages']['tensorflow']}, {machine['date']}"
    )
