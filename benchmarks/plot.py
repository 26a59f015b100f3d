"""Draws a report: the cost of a step by contender, or of saving by cadence."""

import matplotlib
from matplotlib import pyplot

matplotlib.use("Agg")  # into a file, on machines without a screen too

_COLORS = {"ours": "#1b6ca8", "stock": "#444444", "others": "#b8b8b8"}
_OURS = ("plans", "fused", "ours")


def draw(report, path):
    """Draw `report` as a PNG file at `path`: medians, with quartiles as whiskers."""
    figure = _of_sizes(report) if "sizes" in report else _of_models(report)
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
    """Draw what the whole loop loses against the steps between two checkpoints."""
    sizes = report["sizes"]
    figure, all_axes = pyplot.subplots(
        1,
        len(sizes),
        squeeze=False,
        figsize=(1 + 3 * len(sizes), 4),
        layout="constrained",
    )
    for axes, (megabytes, size) in zip(all_axes[0], sizes.items(), strict=True):
        every = [int(steps) for steps in size["cadences"]]
        for way in ("stock", "ours"):
            losses = [ways[way]["slowdown"] for ways in size["cadences"].values()]
            medians = [100 * loss["median"] for loss in losses]
            whiskers = [
                [100 * (loss["median"] - loss["q1"]) for loss in losses],
                [100 * (loss["q3"] - loss["median"]) for loss in losses],
            ]
            axes.errorbar(
                every, medians, whiskers, color=_color(way), label=way, capsize=2
            )
        axes.axhline(0, color=_COLORS["others"], linewidth=1)
        axes.set_title(f"{megabytes} MB", loc="left", fontsize=10)
        axes.set_xlabel("steps from save to save")
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[0, 0].set_ylabel("slowdown of the loop, %; whiskers: quartiles")
    all_axes[0, 0].legend(frameon=False)
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
    return (
        f"{report['benchmark']}{quick}; ratio: to {report['baseline']}\n"
        f"{machine['cpu']}, {machine['cpus']} CPUs, "
        f"TensorFlow {machine['packages']['tensorflow']}, {machine['date']}"
    )
