"""Send signals to the processes of real jobs, and check that nothing is lost."""

import argparse
import collections
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

SAVE_STEPS = {"ps": 150, "gang": 60}
LAST_STEP = {"ps": 900, "gang": 360}
# So many steps before, trainers wait until all faults have been made.
GATE_STEPS = 60
MARKER = "ESTIMATOR_RUNTIME_CHAOS"
HEARTBEAT_SECS = 6
GONE_SECS = 45.0
# Steps that workers take while variables are read one after the other, or while the
# chief begins to save. A torn restore differs by up to a save interval.
SLACK = 10

PROGRAM = """
import os
import sys
import time

import tensorflow as tf

kind, last, save_steps, gate = sys.argv[1], *map(int, sys.argv[2:])
v1 = tf.compat.v1
print("pid", os.getpid(), flush=True)


def model_fn(features, labels, mode):
    step = v1.train.get_global_step()
    values = [
        v1.get_variable(f"v{i}", initializer=[float(i)] * (9 + i)) for i in range(5)
    ]
    loss = -tf.add_n([tf.reduce_sum(value) for value in values])
    if kind == "gang":  # each gradient is -1
        train_op = v1.train.GradientDescentOptimizer(1.0).minimize(loss, step)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
    train_op = tf.no_op()
    for value in values:
        with tf.control_dependencies([train_op]):
            train_op = value.assign_add(tf.ones_like(value)).op
    with tf.control_dependencies([train_op]):
        train_op = step.assign_add(1).op
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


class Tell(v1.train.SessionRunHook):
    def begin(self):
        found = {v.name: v for v in v1.global_variables()}
        values = [found[f"v{i}:0"] for i in range(5)]
        self.fetches = [v1.train.get_global_step(), *values]

    def after_create_session(self, session, coord):
        path = tf.train.latest_checkpoint("model")
        step, *values = session.run(self.fetches)
        spread = [float(v.flat[j]) - i for i, v in enumerate(values) for j in (0, -1)]
        print("session", step, path and path.rpartition("-")[2], *spread, flush=True)

    def before_run(self, context):
        return v1.train.SessionRunArgs(self.fetches[0])

    def after_run(self, context, values):
        print("step", values.results, flush=True)
        time.sleep(0.03)
        while values.results >= gate and not os.path.exists("finish"):
            time.sleep(0.05)


def input_fn():
    return tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat()


config = tf.estimator.RunConfig(
    "model",
    save_checkpoints_steps=save_steps,
    keep_checkpoint_max=1000,
    session_creation_timeout_secs=90,
    train_distribute=(
        tf.distribute.MultiWorkerMirroredStrategy() if kind == "gang" else None
    ),
)
tf.estimator.train_and_evaluate(
    tf.estimator.Estimator(model_fn, config=config),
    tf.estimator.TrainSpec(input_fn, max_steps=last, hooks=[Tell()]),
    tf.estimator.EvalSpec(input_fn, steps=1),
)
print("done", flush=True)
"""


class Violation(Exception):
    """A promise that did not hold; the message says which."""


class ChaosJob:
    """A job, started again whenever a fault has ended it as a whole.

    Attributes:
        kind: "ps" or "gang".
        last_step: Its `max_steps`.
        save_steps: Steps between two checkpoints.
        gate: The step at which trainers wait for the last fault.
        faults: What was done, in order.
        falls: By how many steps the chief's step has fallen, each time.
        spreads: By how much the values of each checkpoint differ from its step.
    """

    def __init__(self, number: int, seed: str, work: Path, deadline_secs: float):
        self.random = random.Random(f"{seed}:{number}")
        self.kind = self.random.choice(("ps", "ps", "gang"))
        self.last_step = LAST_STEP[self.kind]
        self.save_steps = SAVE_STEPS[self.kind]
        self.gate = self.last_step - GATE_STEPS
        self.folder = work / "jobs" / str(number)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "train.py").write_text(PROGRAM)
        self.faults: list[str] = []
        self.falls: list[int] = []
        self.spreads: list[int] = []
        self._marker = uuid.uuid4().hex
        self._deadline = time.monotonic() + deadline_secs
        self._resume: list[tuple[float, int]] = []
        self._excuses: list[str] = []

    @property
    def text(self) -> str:
        """All that the launcher has written."""
        return (self.folder / "job.log").read_text(errors="replace")

    @property
    def _lost_ps(self) -> bool:
        """Whether the chief restores now: its end then is the hardest case."""
        return bool(self.faults) and self.faults[-1].startswith("ps")

    def run(self, faults: int) -> None:
        """Run the job with so many faults.

        Raises:
            Violation: If a promise does not hold.
        """
        self._start()
        try:
            while len(self.faults) < faults:
                if self.random.random() < (0.3 if self._lost_ps else 0.6):
                    self._wait_for_steps(self.random.randint(1, 60))
                self._wait(self.random.choice((0.0, 0.3, 1.0, 2.5)))
                self._make_fault()
            (self.folder / "finish").touch()
            while self._launcher.poll() != 0:
                self._tick()
            self._check_gone()
        finally:
            for pid in self._processes():
                send(pid, signal.SIGKILL)
            self._launcher.wait()
        self._check_log()
        self._check_checkpoints()

    def _start(self) -> None:
        cluster = ["--workers", "1", *(["--ps", "2"] if self.kind == "ps" else [])]
        numbers = map(str, (self.last_step, self.save_steps, self.gate))
        command = [sys.executable, "-m", "estimator_runtime", "run", *cluster]
        command += ["--max-restarts", "100", "--grace", "20"]
        command += ["--heartbeat-timeout", str(HEARTBEAT_SECS)]
        environ = {**os.environ, MARKER: self._marker}
        environ.pop("TF_USE_LEGACY_KERAS", None)
        self._excuses.clear()
        with (self.folder / "job.log").open("ab") as log:
            log.write(b"\nchaos | starting the command\n")
            log.flush()
            self._launcher = subprocess.Popen(
                [*command, "train.py", self.kind, *numbers],
                cwd=self.folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _tick(self) -> None:
        """Wait a moment; start the command again if it ended."""
        self._resume_due()
        status = self._launcher.poll()
        if status:
            self._check_status(status)
            self._check_gone()
            self._start()
        elif time.monotonic() > self._deadline:
            raise Violation(f"it hangs: {'; '.join(self._listing())}")

    def _resume_due(self) -> None:
        """Wait a moment; resume the stopped processes whose time has come."""
        time.sleep(0.05)
        for due in [each for each in self._resume if each[0] <= time.monotonic()]:
            self._resume.remove(due)
            if due[1] in self._processes():
                send(due[1], signal.SIGCONT)
                self._note(f"CONT {due[1]}")

    def _check_status(self, status: int) -> None:
        right = {"launcher KILL": -9, "launcher TERM": 143, "fork server KILL": 1}
        if "| pid" not in self.text.rpartition("starting the command")[2]:
            right["launcher TERM"] = -15 if status == -15 else 143  # python's own start
        if status not in [right[each] for each in self._excuses]:
            because = ", ".join(self._excuses) or "nothing that ends a job"
            raise Violation(f"it ended with status {status} after {because}")

    def _check_gone(self) -> None:
        deadline = time.monotonic() + GONE_SECS
        while self._processes():
            if time.monotonic() > deadline:
                raise Violation(f"processes stay: {'; '.join(self._listing())}")
            self._resume_due()  # a stopped fork server cannot see that it has to end

    def _wait(self, secs: float) -> None:
        end = time.monotonic() + secs
        while time.monotonic() < end:
            self._tick()

    def _wait_for_steps(self, count: int) -> None:
        """Wait until the chief has taken some steps more, or is at the gate."""
        wanted = len(re.findall(r"^chief +\| step \d", self.text, re.M)) + count
        while True:
            steps = re.findall(r"^chief +\| step (\d+)", self.text, re.M)
            if len(steps) >= wanted or (steps and int(steps[-1]) >= self.gate):
                return
            self._tick()

    def _make_fault(self) -> None:
        found = {}
        for pid in self._processes():
            if pid == self._launcher.pid:
                found["launcher"] = pid
            elif re.fullmatch(r"(chief|worker|ps) \d+", name := name_of(pid)):
                found[name] = pid
            elif parent_of(pid) == self._launcher.pid:
                found["fork server"] = pid
        tasks = [name for name in found if name not in ("launcher", "fork server")]
        # Tasks first: the others end all.
        names = sorted(tasks) * 3 + sorted(found)
        if not names or (not tasks and self.random.random() < 0.8):
            return self._tick()
        if self._lost_ps and "chief 0" in found and self.random.random() < 0.5:
            names = ["chief 0"]
        name = self.random.choice(names)
        how = self.random.choice(("KILL", "STOP", "TERM"))
        if name == "fork server" and how == "TERM":
            how = "KILL"  # it is deaf to the other
        number, pid = getattr(signal, f"SIG{how}"), found[name]
        self.faults.append(f"{name} {how}")
        self._note(f"{name} {how} {pid}")
        if name not in tasks and how != "STOP":
            self._excuses.append(f"{name} {how}")
        send(pid, number)
        # Stopped tasks are for the launcher to kill; nobody watches the others.
        if how == "STOP" and (name not in tasks or self.random.random() < 0.4):
            secs = self.random.uniform(0.5, 1.5 * HEARTBEAT_SECS)
            self._resume.append((time.monotonic() + secs, pid))
            if name == "fork server" and self.random.random() < 0.5:
                self.faults.append("launcher TERM")
                self._excuses.append("launcher TERM")
                self._note(f"launcher TERM {self._launcher.pid}")
                send(self._launcher.pid, signal.SIGTERM)
        return None

    def _note(self, text: str) -> None:
        with (self.folder / "job.log").open("a") as log:
            log.write(f"chaos | {time.strftime('%X')} {text}\n")

    def _processes(self) -> set[int]:
        """Return the pids of all processes of the job that live."""
        wanted, found = f"{MARKER}={self._marker}".encode(), set()
        for entry in filter(str.isdigit, os.listdir("/proc")):
            if wanted in read_proc(int(entry), "environ").split(b"\0"):
                found.add(int(entry))
        return found

    def _listing(self) -> Iterator[str]:
        for pid in sorted(self._processes()):
            state = read_proc(pid, "stat").rpartition(b")")[2].split()[:1]
            yield f"{pid} {name_of(pid)} {state}"

    def _check_log(self) -> None:
        """Check the values that each session began with, and the chief's steps."""
        last_step = None
        pattern = r"^(chief|worker \d+) +\| (step|session) (\d+)(.*)$"
        for task, what, number, rest in re.findall(pattern, self.text, re.M):
            step = int(number)
            newest, *values = rest.split() or ["None", number]
            spread = max(abs(float(value) - step) for value in values)
            if spread > (SLACK if self.kind == "ps" else 0):
                raise Violation(f"a session of step {step} had values {values}")
            if what == "step" and task == "chief":
                last_step = step
            if what == "step" or task != "chief":
                continue
            if newest != "None" and step < int(newest):
                raise Violation(f"a session began at {step}, the newest was {newest}")
            if last_step is not None and step < last_step:
                self.falls.append(last_step - step)
                if last_step - step > self.save_steps + SLACK:
                    raise Violation(f"the step fell from {last_step} to {step}")
                last_step = step

    def _check_checkpoints(self) -> None:
        """Check that each checkpoint can be read, with the values of its step."""
        import tensorflow as tf

        model, steps = self.folder / "model", []
        for index in sorted(model.glob("model.ckpt-*.index")):
            reader = tf.train.load_checkpoint(str(index.with_suffix("")))
            step = int(reader.get_tensor("global_step"))
            steps.append(step)
            values = [reader.get_tensor(f"v{i}") - i for i in range(5)]
            spread = max(abs(value - step).max() for value in values)
            self.spreads.append(int(spread))
            if spread > (SLACK if self.kind == "ps" else 0):
                raise Violation(f"{index.name} has step {step}, values {values}")
        if max(steps, default=0) < self.last_step:
            raise Violation(f"it ended well at step {max(steps, default=0)}")
        newest = tf.train.latest_checkpoint(str(model))
        if int(tf.train.load_variable(newest, "global_step")) != max(steps):
            raise Violation(f"the state file names {newest}, not {max(steps)}")
        if list(model.glob("damaged*")):
            raise Violation("a checkpoint was damaged")


def send(pid: int, number: int) -> None:
    """Send a signal to a process, if it is still there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def read_proc(pid: int, name: str) -> bytes:
    """Return what the kernel says about a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def name_of(pid: int) -> str:
    """Return the name of a process, such as "worker 0"."""
    return read_proc(pid, "comm").decode(errors="replace").strip()


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent; 0 if it is gone."""
    fields = read_proc(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def run(options: argparse.Namespace, work: Path) -> int:
    """Run jobs until there were enough faults; return the number of violations."""
    counts: collections.Counter[str] = collections.Counter()
    violations, spreads = 0, [0]
    falls: dict[str, list[int]] = {"ps": [0], "gang": [0]}
    number = 0 if options.only is None else options.only
    while counts.total() < options.faults:
        job = ChaosJob(number, options.seed, work, options.deadline)
        began, problem = time.monotonic(), None
        try:
            job.run(job.random.randint(3, 6))
        except Violation as error:
            problem = str(error)
            violations += 1
        counts.update(f"{job.kind}: {fault}" for fault in job.faults)
        falls[job.kind] += job.falls
        spreads += job.spreads if job.kind == "ps" else []
        took = time.monotonic() - began
        print(
            f"{number}: {job.kind}, {', '.join(job.faults)}: {took:.0f} s", flush=True
        )
        if problem:
            print(f"    VIOLATION: {problem}\n    again: --only {number}; {job.folder}")
        else:
            shutil.rmtree(job.folder)
        if options.only is not None:
            break
        number += 1
    for fault, count in sorted(counts.items()):
        print(f"{fault:24} {count:4}")
    print(f"{counts.total()} faults")
    for kind, each in falls.items():
        print(
            f"{kind}: the step fell by {max(each)} at most, saves: {SAVE_STEPS[kind]}"
        )
    print(
        f"ps: values in a checkpoint differed from its step by {max(spreads)} at most"
    )
    return violations
