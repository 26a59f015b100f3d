"""A task that gives up ends, whatever has become of its standard output and error."""

import textwrap

import pytest

# What a program may find, or make, of its streams: each is a piece of it.
_STREAMS = {
    "the reader of its output has gone": """
        ours, theirs = os.pipe()
        os.dup2(theirs, 1)
        os.close(ours)
        sys.stdout.write("unread")
    """,
    "its streams are closed, or there are none": """
        sys.stdout = None
        sys.stderr.close()
    """,
    "the reader of both pauses": """
        ours, theirs = os.pipe()
        os.set_blocking(theirs, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(theirs, bytes(4096))
        os.set_blocking(theirs, True)
        os.dup2(theirs, 1)
        os.dup2(theirs, 2)
        sys.stdout.write("unread")
    """,
}
_START = """
    import contextlib, os, sys, threading
    import estimator_runtime as er
    er.install()
    import tensorflow as tf
    from estimator_runtime.distributed import finish_note as finish
    from estimator_runtime.session.hooks.peer_watchdog import PeerWatchdogHook
    from estimator_runtime.distributed.peers import Answer
    from estimator_runtime.distributed.ps import ParameterServer
    from estimator_runtime.distributed.liveness import WatchedPeer
"""
_GIVES_UP = """
    ps = WatchedPeer(
        name="ps 0",
        addresses=("127.0.0.1:1",),  # where nobody listens
        missed_if=frozenset([Answer.REFUSED]),
        timeout_secs=6.0,  # it is named once before
        setting="ESTIMATOR_RUNTIME_PEER_TIMEOUT_SECS",
        meanwhile="no step can end without it",
    )
    hook = PeerWatchdogHook([ps])
    hook.after_create_session(None, tf.train.Coordinator())
    threading.Event().wait(40)  # a step that hangs
    os._exit(5)
"""
_SERVES = """
    ps = ParameterServer(sys.argv[1], {}, 60)
    finish.note(sys.argv[1], 10)
    threading.Thread(target=ps.serve_and_exit, daemon=True).start()
    threading.Event().wait(40)  # TensorFlow's server
    os._exit(5)
"""

_CREATES_A_SESSION = """
    import json, socket
    from estimator_runtime.session import creators
    ps, free = socket.create_server(("127.0.0.1", 0)), socket.create_server(("", 0))
    name = "127.0.0.1:%d"
    own = name % free.getsockname()[1]
    free.close()
    cluster = {
        "chief": ["127.0.0.1:1"], "ps": [name % ps.getsockname()[1]], "worker": [own]
    }
    task = {"type": "worker", "index": 0}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    os.environ["ESTIMATOR_RUNTIME_PEER_TIMEOUT_SECS"] = "4"

    def answer_once():
        connections = [ps.accept()[0]]
        connections[0].send(b"x")
        while True:
            connections.append(ps.accept()[0])

    threading.Thread(target=answer_once, daemon=True).start()
    server = tf.distribute.Server(cluster, "worker", 0)
    tf.compat.v1.get_variable("weight", initializer=1.0)
    scaffold = tf.compat.v1.train.Scaffold()
    creators.WorkerCreator(scaffold, server.target, max_wait_secs=40).create_session()
    os._exit(5)
"""


@pytest.fixture
def run(run_python, tmp_path):
    """Return a function that runs a program: its exit status and standard error."""

    def run(*parts):
        program = "".join(map(textwrap.dedent, parts))
        # What is unread waits in python's buffer.
        options = {"cwd": tmp_path, "timeout": 110, "PYTHONUNBUFFERED": None}
        done = run_python("-c", program, tmp_path, **options)
        return done.returncode, done.stderr

    return run


@pytest.mark.timeout(120)
@pytest.mark.parametrize("streams", _STREAMS)
def test_a_task_that_gives_another_one_up_ends_though(streams, run):
    status, told = run(_START, _STREAMS[streams], _GIVES_UP)
    assert status == 1, told
    if "output" in streams:
        assert "no answer from ps 0 for 6 s" in told
        assert "giving up" in told


@pytest.mark.timeout(120)
def test_a_worker_gives_up_a_ps_that_stops_answering_before_there_is_a_session(run):
    graph = "\ntf.compat.v1.disable_eager_execution()\n"
    status, told = run(_START, graph, _CREATES_A_SESSION)
    assert status == 1, told
    assert "ps 0 at 127.0.0.1:" in told
    assert "s (ESTIMATOR_RUNTIME_PEER_TIMEOUT_SECS is 4), and no step can end" in told


@pytest.mark.timeout(120)
@pytest.mark.parametrize("streams", _STREAMS)
def test_a_ps_whose_training_has_ended_ends_though(streams, run):
    status, told = run(_START, _STREAMS[streams], _SERVES)
    assert status == 0, told
