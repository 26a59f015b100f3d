"""Damages model directories and jobs at random, and checks that nothing is lost.

    python -m tools.chaos folders --count 1000 --seed 1
    python -m tools.chaos jobs --faults 200 --seed 1
    python -m tools.chaos folders --seed 1 --only 17  # one item of that run again

`folders` trains a few steps in damaged copies of a model directory. A training must go
on from the newest good checkpoint (or from the one that the state file names), with all
values of one step, or be refused with a CheckpointError if no checkpoint is good. No
good checkpoint may be lost. What is good is decided here, by comparing bytes.

`jobs` starts real jobs and sends SIGKILL, SIGSTOP and SIGTERM to their tasks, to the
fork server and to the launcher. A job must end well, with every checkpoint consistent
and nothing left running.

All that is random follows from the seed and the number of the item; only the moment at
which a signal arrives also depends on the machine. What a violation needs to be looked
at is kept in the folder of the run. The exit status is 1 if there is any.
"""

import argparse
import os
import pathlib
import signal
import sys
import tempfile
import time

from tools.chaos import folders, jobs


def main() -> int:
    """Run the chosen kind of chaos; return 1 if it found a violation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    of_folders = commands.add_parser("folders", help="damage model directories")
    of_folders.add_argument("--count", type=int, default=1000)
    of_folders.add_argument("--processes", type=int, default=2, help="default: 2")
    of_jobs = commands.add_parser("jobs", help="send signals to jobs")
    of_jobs.add_argument("--faults", type=int, default=200)
    of_jobs.add_argument("--deadline", type=float, default=400, help="of a job, in s")
    for each in (of_folders, of_jobs):
        each.add_argument("--seed", default="1")
        each.add_argument("--only", type=int, metavar="K", help="item K alone")
        each.add_argument("--work", help="folder of the run; default: a new one")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # So that what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = pathlib.Path(options.work or tempfile.mkdtemp(prefix="chaos-")).resolve()
    work.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}, in {work}", flush=True)
    began = time.monotonic()
    run = folders.run if options.what == "folders" else jobs.run
    violations = run(options, work)
    print(f"{violations} violations in {time.monotonic() - began:.0f} s")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
