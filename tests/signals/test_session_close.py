"""Sessions are closed within a bounded time, or in the background."""

import gzip
import json
import logging
import os
import threading
import zipfile

import pytest
import tensorflow as tf

from estimator_runtime.signals import session_close
from estimator_runtime.signals.session_close import (
    BoundedClose,
    closable,
    is_end_observable,
)


class Session:
    """A session whose close does what it is told."""

    def __init__(self, close, target=b"grpc://h:1"):
        self.close, self.sess_str = close, target


def test_a_close_that_never_comes_back_is_left_alone_and_the_log_says_so(caplog):
    never = threading.Event()
    BoundedClose(Session(never.wait), timeout_secs=0.05, warns=True).close()
    never.set()
    assert caplog.record_tuples == [
        (
            "estimator_runtime.signals.session_close",
            logging.WARNING,
            "a task of the cluster does not answer that the session is closed; going on "
            "without its answer after 0.05 s",
        )
    ]


def test_an_error_of_a_close_is_raised():
    def close():
        raise tf.errors.UnavailableError(None, None, "gone")

    with pytest.raises(tf.errors.UnavailableError, match="gone"):
        closable(Session(close)).close()


def test_a_stopped_program_waits_no_longer_than_a_second_for_its_session():
    never = threading.Event()
    closable(Session(never.wait), is_stop=True).close()
    assert session_close.are_left()
    never.set()
    assert not session_close.are_left(wait_secs=10)


MISSED = """
import os, sys, time
import tensorflow as tf
import estimator_runtime as er

# The thread that tunes the input misses its cancellation if it runs as soon as it is
# woken: on the only CPU, in place of a thread that closes with the lowest priority.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
v1 = tf.compat.v1
v1.disable_eager_execution()
close = v1.Session.close


def close_slowly(session):
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    close(session)
    print("closed", flush=True)


v1.Session.close = close_slowly
step, elements = v1.train.get_or_create_global_step().assign_add(1), []
for _ in range(2):
    numbers = tf.data.Dataset.range(100)
    if sys.argv[1] == "generator":
        numbers = tf.data.Dataset.from_generator(lambda: range(100), tf.int64, [])
    iterator = v1.data.make_initializable_iterator(
        numbers.shuffle(10).repeat().batch(4).prefetch(1)
    )
    v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    elements.append(iterator.get_next())
with er.MonitoredTrainingSession(checkpoint_dir="model") as session:
    session.run([step, elements])
    end = time.monotonic() + 2.7  # it then sleeps for seconds
    while time.monotonic() < end:
        session.run([step, elements])
        time.sleep(0.01)
print("trained", tf.train.latest_checkpoint("model") is not None, flush=True)
"""


@pytest.mark.long("a thread of TensorFlow sleeps, longer the slower the machine is")
@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="needs Linux's scheduler")
@pytest.mark.parametrize(
    ("source", "lines"),
    [("range", ["trained True", "closed"]), ("generator", ["closed", "trained True"])],
)
def test_a_program_goes_on_while_a_session_closes_unless_it_could_tell(
    run_python, tmp_path, source, lines
):
    (tmp_path / "program.py").write_text(MISSED)
    done = run_python("program.py", source, cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == lines


ENDED = """
import atexit, ctypes, gzip, json, sys, threading, time, zipfile
import tensorflow as tf
import estimator_runtime as er
import other

atexit.register(print, "an exit handler")
ctypes.CDLL(None).puts(b"a line of a C library")
v1 = tf.compat.v1
v1.Session.close = lambda session: threading.Event().wait()  # for ever
notes = open("notes", "w")
packed, archive = gzip.open("notes.gz", "wt"), zipfile.ZipFile("notes.zip", "w")
other.records = tf.io.TFRecordWriter("notes.tfrecord")


class Table:
    rows = ["a note"]

    def __del__(self):
        time.sleep(2.5 if sys.argv[1] == "server" else 0)  # a slow disk
        with open("notes.json", "w") as file:
            json.dump(self.rows, file)


table = Table()
if sys.argv[1] == "server":
    v1.held_by_tensorflow = lambda: table
with tf.Graph().as_default():
    numbers = tf.data.Dataset.range(100).repeat()
    number = v1.data.make_one_shot_iterator(numbers).get_next()
    step = v1.train.get_or_create_global_step().assign_add(1)
    master = ""
    if sys.argv[1] == "server":
        server = v1.train.Server.create_local_server()
        master = server.target
    with er.MonitoredTrainingSession(master) as session:
        session.run([step, number])
notes.write("a note")
packed.write("a note")
archive.writestr("a", "a note")
other.records.write("a note")
print("trained", flush=True)


def main():
    local = gzip.open("local.gz", "wt")
    local.write("a note")
    if sys.argv[2:] == ["fail"]:
        raise LookupError("a failure")
    if len(sys.argv) > 2:
        sys.exit(int(sys.argv[2]))


main()
"""


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("no server",), 0),
        (("no server", "0"), 0),
        (("no server", "7"), 7),
        (("no server", "fail"), 1),
        (("server",), 0),
    ],
)
def test_a_session_that_does_not_close_does_not_hold_up_the_end_of_a_program(
    run_script, tmp_path, arguments, status
):
    (tmp_path / "program.py").write_text(ENDED)
    (tmp_path / "other.py").touch()
    done = run_script("program.py", *arguments, cwd=tmp_path, timeout=50)
    assert done.returncode == status, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "a line of a C library",
        "an exit handler",
        "trained",
    ]
    assert "Exception" not in done.stderr
    # Whole, though the program has closed none of them.
    assert (tmp_path / "notes").read_text() == "a note"
    for name in ("notes.gz", "local.gz"):
        assert gzip.decompress((tmp_path / name).read_bytes()) == b"a note"
    with zipfile.ZipFile(tmp_path / "notes.zip") as archive:
        assert archive.read("a") == b"a note"
    records = tf.compat.v1.io.tf_record_iterator(str(tmp_path / "notes.tfrecord"))
    assert list(records) == [b"a note"]
    assert json.loads((tmp_path / "notes.json").read_text()) == ["a note"]


def iterated(dataset):
    return tf.compat.v1.data.make_initializable_iterator(dataset).get_next()


@pytest.mark.parametrize(
    ("build", "is_observable"),
    [
        (lambda: tf.data.Dataset.range(3).map(lambda x: x + 1), False),
        (lambda: tf.data.Dataset.range(3).cache("a_file"), True),
        (
            lambda: tf.data.Dataset.from_generator(lambda: range(3), tf.int64, []),
            True,
        ),
        (
            lambda: tf.data.Dataset.range(3).map(
                lambda x: tf.numpy_function(lambda y: y, [x], tf.int64)
            ),
            True,
        ),
    ],
)
def test_a_later_end_of_a_pipeline_with_functions_or_files_can_be_observed(
    build, is_observable
):
    with tf.Graph().as_default() as graph:
        iterated(build())
    assert is_end_observable(graph) == is_observable
    assert is_end_observable(graph, frees_variables=False) == is_observable
