"""What the runs of a training at several cadences tell, and which one to choose."""

import dataclasses
import statistics

from benchmarks import harness
from benchmarks.report import cell, headline, machine_lines
from estimator_runtime.checkpoint import measured

BASELINE = "none"
_QUIET = 0.15  # part by which two equal runs differ on a machine with nothing else


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """What one bounded run of the script did.

    Attributes:
        steps: How many were measured.
        secs: How long they took.
        saves: (step, bytes, blocked seconds, write seconds) of each checkpoint, those
            at the start and the end of the run too.
    """

    steps: int
    secs: float
    saves: tuple[tuple[int, float, float, float], ...]

    @property
    def steps_per_sec(self):
        """The rate of the measured steps."""
        return self.steps / self.secs


def figures(found, mtbf_hours):
    """Give what the runs tell, and the advice.

    Args:
        found: "none" and steps from save to save to lists of `Training`, by round.
        mtbf_hours: Hours from one failure to the next.
    """
    mtbf_secs = mtbf_hours * 3600
    saves = [save for own in found.values() for each in own for save in each.saves]
    costs = measured.Costs(
        count=len(saves),
        blocked_secs=statistics.median(save[2] for save in saves),
        write_secs=statistics.median(save[3] for save in saves),
        interval_secs=None,
    )
    reference = found[BASELINE]
    rate = statistics.median(each.steps_per_sec for each in reference)
    best_secs = max(1, round(costs.best_interval_secs(mtbf_secs)))
    cadences = {}
    for name, own in found.items():
        pairs = zip(own, reference, strict=True)
        slowdown = [t.secs / t.steps * o.steps_per_sec - 1 for t, o in pairs]
        cadences[name] = {
            "steps_per_sec": harness.spread(each.steps_per_sec for each in own),
            "slowdown": harness.spread(slowdown),
        }
        if name != BASELINE:
            interval_secs = int(name) / rate
            cadences[name] |= {
                "interval_secs": interval_secs,
                "saves": sum(len(each.saves) for each in own),
                **_medians([save for each in own for save in each.saves]),
                "lost_part": costs.lost_part(interval_secs, mtbf_secs),
            }
    return {
        "mtbf_secs": mtbf_secs,
        "cost": {
            "saves": costs.count,
            "blocked_secs": costs.blocked_secs,
            "write_secs": costs.write_secs,
            "bytes": statistics.median(save[1] for save in saves),
        },
        "cadences": cadences,
        "advice": {
            "interval_secs": best_secs,
            "interval_steps": max(1, round(best_secs * rate)),
            "checkpoints_part": costs.cost_secs / best_secs,
            "lost_part": costs.lost_part(best_secs, mtbf_secs),
            "lost_part_at_600_secs": costs.lost_part(600, mtbf_secs),
        },
    }


def _medians(saves):
    names = ("bytes", "blocked_secs", "write_secs")
    return {
        name: statistics.median(save[place] for save in saves)
        for place, name in enumerate(names, 1)
    }


def render(report):
    """Give a report as Markdown: a table of the cadences, and the advice."""
    mtbf_hours = report["mtbf_secs"] / 3600
    lines = [headline(report), "", *machine_lines(report["machine"])]
    lines += [
        "",
        f"`{' '.join(report['script'])}`, {report['secs']:g} s each; a failure every "
        f"{mtbf_hours:g} h; median (lower to upper quartile).",
        "",
        "| saved every | is, s | saves | steps/s | slower than none | blocked, ms "
        "| written in, ms | MB | lost in all |",
        "|---" * 9 + "|",
    ]
    none = report["cadences"][report["baseline"]]
    for name, own in report["cadences"].items():
        rate = cell(own["steps_per_sec"], ".4g")
        if own is none:
            lines.append(f"| {name} | | | {rate} | | | | | |")
            continue
        cells = [
            f"{name} steps",
            f"{own['interval_secs']:.3g}",
            str(own["saves"]),
            rate,
            cell(own["slowdown"], "+.1%"),
            f"{1e3 * own['blocked_secs']:.3g}",
            f"{1e3 * own['write_secs']:.3g}",
            f"{own['bytes'] / 1e6:.3g}",
            f"{own['lost_part']:.2%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *_advice(report, mtbf_hours)]
    pilot, rate = report["pilot_steps_per_sec"], none["steps_per_sec"]["median"]
    if max(pilot, rate) > min(pilot, rate) * (1 + _QUIET):
        lines += [
            "",
            f"**The machine is not quiet**: the pilot made {pilot:.4g} steps/s, the "
            f"same training later {rate:.4g}. Give it more --secs or --rounds, or "
            "come back.",
        ]
    return "\n".join(lines) + "\n"


def _advice(report, mtbf_hours):
    cost, advice = report["cost"], report["advice"]
    cost_secs = cost["blocked_secs"] + cost["write_secs"]
    again = advice["lost_part"] - advice["checkpoints_part"]
    yield (
        f"Choose **`RunConfig(save_checkpoints_secs={advice['interval_secs']})`**, "
        f"here about {advice['interval_steps']} steps."
    )
    yield ""
    yield (
        f"A checkpoint costs {cost_secs:.3g} s at most: training waits "
        f"{cost['blocked_secs']:.3g} s, and the background writes "
        f"{cost['write_secs']:.3g} s (medians of {cost['saves']}). With a failure "
        f"every {mtbf_hours:g} h the least is lost when one is saved every "
        f"{advice['interval_secs']} s, the root of twice the cost times the time "
        f"between failures (Young, Daly): {advice['lost_part']:.2%} of the time, "
        f"{advice['checkpoints_part']:.2%} to checkpoints and {again:.2%} to work done "
        f"again. With the default of 600 s it is {advice['lost_part_at_600_secs']:.2%}."
    )
