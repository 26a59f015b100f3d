"""Draws a report: for each model, every contender's cost of a step."""

import matplotlib
from matplotlib import pyplot

matplotlib.use("Agg")  # into a file, on machines without a screen too

_COLORS = {"ours": "#1b6ca8", "stock": "#444444", "others": "#b8b8b8"}
_OURS = ("plans", "fused", "ours")


def draw(report, path):
    """Draw `report` as a PNG file at `path`: medians, with quartiles as whiskers."""
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
    figure.suptitle(_caption(report), fontsize=9, x=0.01, ha="left")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


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
