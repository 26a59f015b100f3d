"""Which cost of a checkpoint to count with: the noted one, or what training lost."""

import dataclasses
import statistics

AGREES, LOST_MORE, LOST_LESS = "agrees", "lost more", "lost less"
HIDDEN, ALONE, NOISY = "hidden by noise", "one cadence alone", "noisy"
# Times by which two costs may differ, both being rough: one that is saved faster than
# written is up to twofold off.
_ALIKE = 2.0
_FITTING = 1.5  # times by which a cadence may lose more or less than a cost gives


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """What two ways to measure the cost of a checkpoint come to.

    Attributes:
        secs: The cost to count with.
        measured_secs: The cost by the slowdowns; the median over cadences and rounds.
        verdict: One of the constants above; why it is, or is not, counted with.
    """

    secs: float
    measured_secs: float
    verdict: str


def noise(rates):
    """Return the fraction by which the fastest of equal runs exceeds the slowest."""
    return max(rates) / min(rates) - 1


def judge(noted_secs, extra_secs, noise_secs):
    """Compare the noted cost of a checkpoint with what the slowdowns tell.

    Args:
        noted_secs: What the runtime notes of one: blocked and write seconds.
        extra_secs: Steps from save to save to seconds that a step took longer than
            without checkpoints, by round.
        noise_secs: Seconds a step by which runs without checkpoints differ.
    """
    medians = {every: statistics.median(own) for every, own in extra_secs.items()}
    # What is rarely saved would multiply the noise by many steps.
    loud = [every for every, secs in medians.items() if secs > noise_secs]
    measured_secs = statistics.median(
        every * secs for every in loud or extra_secs for secs in extra_secs[every]
    )
    if not loud:
        is_possible = _explains(noted_secs, medians, noise_secs, _ALIKE)
        verdict = HIDDEN if is_possible else LOST_LESS
    elif not _explains(measured_secs, medians, noise_secs, _ALIKE):
        verdict = NOISY
    elif _alike(measured_secs, noted_secs, _ALIKE):
        verdict = AGREES
    elif not _explains(measured_secs, medians, noise_secs, _FITTING):
        verdict = NOISY
    elif len(medians) == 1:
        verdict = ALONE
    else:
        verdict = LOST_MORE if measured_secs > noted_secs else LOST_LESS
    return Judged(
        secs=measured_secs if verdict == LOST_MORE else noted_secs,
        measured_secs=measured_secs,
        verdict=verdict,
    )


def _explains(cost_secs, medians, noise_secs, times):
    """Tell whether a cost gives what was lost at each cadence, or nearly.

    It would make the loss grow in proportion to the saves; load on the machine does
    not.
    """
    return all(
        abs(secs - cost_secs / every) <= noise_secs
        or _alike(secs, cost_secs / every, times)
        for every, secs in medians.items()
    )


def _alike(one, other, times):
    low, high = sorted((one, other))
    return low > 0 and high <= times * low


def sentence(cost, noise):
    """Return one sentence on how the two costs compare.

    Args:
        cost: The `cost` of a report.
        noise: The part by which runs without checkpoints differ.
    """
    lost = f"{cost['measured_secs']:.3g} s for each checkpoint"
    return {
        AGREES: f"The measured slowdowns come to {lost}, about the same.",
        LOST_MORE: (
            f"**Training lost more**: the measured slowdowns come to {lost}, grow with "
            f"the frequency of saves and exceed the noise of {noise:.1%}, so there is "
            "a cost that waiting and writing do not show, and the advice counts with "
            "it."
        ),
        LOST_LESS: (
            f"Training lost less, {lost} by the measured slowdowns, as some of the "
            "writing took no time from it; the advice counts with the noted cost, to "
            "be safe."
        ),
        HIDDEN: (
            "The measured slowdowns neither confirm nor refute it: none exceeds the "
            f"{noise:.1%} by which runs without checkpoints differ (more --rounds on a "
            "quiet machine, or a larger --secs, may tell)."
        ),
        ALONE: (
            f"**The measured slowdown does not fit**: it comes to {lost}, but one "
            "cadence alone does not show whether that is noise, so the advice counts "
            "with the noted cost; give a larger --secs."
        ),
        NOISY: (
            f"**The measured slowdowns do not fit**: they come to {lost} (median), but "
            "do not grow in proportion to the saves, as a cost would; most likely the "
            "machine was too noisy, so the advice counts with the noted cost: use more "
            "--rounds on a quiet machine."
        ),
    }[cost["verdict"]]
