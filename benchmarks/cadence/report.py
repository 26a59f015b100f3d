"""What the runs of a training at several cadences tell, and which one to choose."""

import dataclasses
import statistics

from benchmarks.cadence import cost as cadence_cost
from benchmarks.harness import measurement
from benchmarks.harness.report import cell, headline, machine_lines
from estimator_runtime.checkpoint import cost as checkpoint_cost

BASELINE = "none"
_QUIET = 0.15  # part by which equal runs differ on a machine with nothing else
_FEW_SAVES = 3  # in a run; fewer may be more or less than their share of its steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """What one bounded run of the script did.

    Attributes:
        first_step: The global step after which it was measured.
        steps: How many were measured.
        secs: How long they took.
        saves: (step, bytes, blocked seconds, write seconds) of each checkpoint, those
            at the start and the end of the run too.
    """

    first_step: int
    steps: int
    secs: float
    saves: tuple[tuple[int, float, float, float], ...]

    @property
    def steps_per_sec(self):
        """The rate of the measured steps."""
        return self.steps / self.secs

    @property
    def measured_saves(self):
        """How many of the checkpoints were saved in the measured steps."""
        last_step = self.first_step + self.steps
        return sum(self.first_step < save[0] <= last_step for save in self.saves)


def figures(found, mtbf_hours, pilot_steps_per_sec):
    """Return what the runs show, and the advice.

    Args:
        found: "none" and steps from save to save to lists of `Training`, by round.
        mtbf_hours: Hours from one failure to the next.
        pilot_steps_per_sec: The rate of one more run without checkpoints.
    """
    mtbf_secs = mtbf_hours * 3600
    saves = [save for own in found.values() for each in own for save in each.saves]
    noted = _medians(saves)
    reference = found[BASELINE]
    rates = [each.steps_per_sec for each in reference]
    rate = statistics.median(rates)
    noise = cadence_cost.noise([pilot_steps_per_sec, *rates])
    judged = cadence_cost.judge(
        noted["blocked_secs"] + noted["write_secs"], _extra_secs(found), noise / rate
    )
    costs = checkpoint_cost.Costs(
        count=len(saves), blocked_secs=judged.secs, write_secs=0.0, interval_secs=None
    )
    best_secs = max(1, round(costs.best_interval_secs(mtbf_secs)))
    cadences = {}
    for name, own in found.items():
        pairs = zip(own, reference, strict=True)
        slowdown = [t.secs / t.steps * o.steps_per_sec - 1 for t, o in pairs]
        cadences[name] = {
            "steps_per_sec": measurement.spread(each.steps_per_sec for each in own),
            "slowdown": measurement.spread(slowdown),
        }
        if name != BASELINE:
            interval_secs = int(name) / rate
            cadences[name] |= {
                "interval_secs": interval_secs,
                "saves": sum(len(each.saves) for each in own),
                "saves_per_run": statistics.median(t.measured_saves for t in own),
                **_medians([save for each in own for save in each.saves]),
                "lost_part": costs.lost_part(interval_secs, mtbf_secs),
            }
    return {
        "mtbf_secs": mtbf_secs,
        "noise": noise,
        "cost": {"saves": costs.count, **noted, **dataclasses.asdict(judged)},
        "cadences": cadences,
        "advice": {
            "interval_secs": best_secs,
            "interval_steps": max(1, round(best_secs * rate)),
            "checkpoints_part": costs.cost_secs / best_secs,
            "lost_part": costs.lost_part(best_secs, mtbf_secs),
            "lost_part_at_600_secs": costs.lost_part(600, mtbf_secs),
        },
    }


def _extra_secs(found):
    """Return what `cadence_cost.judge` takes: what a step took longer, by cadence."""
    return {
        int(name): [
            t.secs / t.steps - o.secs / o.steps
            for t, o in zip(own, found[BASELINE], strict=True)
        ]
        for name, own in found.items()
        if name != BASELINE
    }


def _medians(saves):
    names = ("bytes", "blocked_secs", "write_secs")
    return {
        name: statistics.median(save[place] for save in saves)
        for place, name in enumerate(names, 1)
    }


def render(report):
    """Return a report as Markdown: a table of the cadences, and the advice."""
    mtbf_hours = report["mtbf_secs"] / 3600
    none = report["cadences"][report["baseline"]]
    rounds = len(none["steps_per_sec"]["rounds"])
    lines = [headline(report), "", *machine_lines(report["machine"])]
    lines += [
        "",
        f"`{' '.join(report['script'])}`, {report['secs']:g} s each; a failure every "
        f"{mtbf_hours:g} h; median (lower to upper quartile) of {rounds} "
        f"round{'s' * (rounds != 1)}.",
        "",
        "| saved every | is, s | saves a run | steps/s | slower than none "
        "| blocked, ms | written in, ms | MB | lost in all |",
        "|---" * 9 + "|",
    ]
    for name, own in report["cadences"].items():
        rate = cell(own["steps_per_sec"], ".4g")
        if own is none:
            lines.append(f"| {name} | | | {rate} | | | | | |")
            continue
        cells = [
            f"{name} steps",
            f"{own['interval_secs']:.3g}",
            f"{own['saves_per_run']:g}",
            rate,
            cell(own["slowdown"], "+.1%"),
            f"{1e3 * own['blocked_secs']:.3g}",
            f"{1e3 * own['write_secs']:.3g}",
            f"{own['bytes'] / 1e6:.3g}",
            f"{own['lost_part']:.2%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *_advice(report, mtbf_hours), *_warnings(report)]
    return "\n".join(lines) + "\n"


def _advice(report, mtbf_hours):
    cost, advice = report["cost"], report["advice"]
    noted_secs = cost["blocked_secs"] + cost["write_secs"]
    again = advice["lost_part"] - advice["checkpoints_part"]
    yield (
        f"Choose **`RunConfig(save_checkpoints_secs={advice['interval_secs']})`**, "
        f"here about {advice['interval_steps']} steps."
    )
    yield ""
    yield (
        f"The runtime notes {noted_secs:.3g} s of a checkpoint: training waits "
        f"{cost['blocked_secs']:.3g} s, and the background writes "
        f"{cost['write_secs']:.3g} s (medians of {cost['saves']}). "
        f"{cadence_cost.sentence(cost, report['noise'])}"
    )
    yield ""
    yield (
        f"With {cost['secs']:.3g} s for each and a failure every {mtbf_hours:g} h, the "
        f"least is lost when one is saved every {advice['interval_secs']} s, the root "
        "of twice the cost times the time between failures (Young, Daly): "
        f"{advice['lost_part']:.2%} of the time, "
        f"{advice['checkpoints_part']:.2%} to checkpoints and {again:.2%} to work done "
        f"again. With the default of 600 s it is {advice['lost_part_at_600_secs']:.2%}."
    )


def _warnings(report):
    few = [
        f"every {name} steps"
        for name, own in report["cadences"].items()
        if own.get("saves_per_run", _FEW_SAVES) < _FEW_SAVES
    ]
    if few:
        yield ""
        yield (
            f"**Few saves**: fewer than {_FEW_SAVES} fell into a run when saved "
            f"{' or '.join(few)}, which says little on their cost. Give a larger "
            "--secs."
        )
    if report["noise"] > _QUIET:
        yield ""
        yield (
            "**The machine is not quiet**: runs without checkpoints differ by "
            f"{report['noise']:.0%}. Give it more --secs, or come back when it is."
        )
