"""TF_CONFIG as a task understands it, and real ports of this machine."""

import json
import socket

import pytest

from estimator_runtime.cli.doctor.finding import Subject
from estimator_runtime.cli.doctor.report import examine


def environ(own, **cluster):
    task_type, index = own.split()
    document = {"cluster": cluster, "task": {"type": task_type, "index": int(index)}}
    return {"TF_CONFIG": json.dumps(document)}


def ports(own, **cluster):
    subject = Subject(environ=environ(own, **cluster))
    found = examine(subject, ("own port", "other tasks"))
    return [(about, each.state, each.text) for about, each in found]


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    "variables, state, text",
    [
        ({"TF_CONFIG": "{}"}, "ok", "no cluster in it: this process trains by itself"),
        (
            environ("worker 1", chief=["h:1"], worker=["h:2", "h:3"], ps=["h:4"]),
            "ok",
            "this is worker 1, of a cluster of 1 chief, 2 worker, 1 ps",
        ),
        (
            environ("worker 0", worker=["h:2"]),
            "note",
            "this is worker 0, of a cluster of 1 worker; without a chief only "
            "multi-worker strategies train",
        ),
        (  # `run` refuses it too, although nobody connects to the only task
            environ("chief 0", chief=["h:99999"]),
            "problem",
            "cluster['chief'][0] is 'h:99999', which is no address; use 'host:port', such "
            "as 'host0:2222' or '[::1]:2222'",
        ),
    ],
)
def test_tf_config_is_said_as_the_task_reads_it(variables, state, text):
    subject = Subject(environ=variables)
    [(_, found)] = examine(subject, ["TF_CONFIG"])
    assert (found.state, found.text) == (state, text)
    assert (subject.config is None) == (state == "problem")


def test_a_task_that_can_listen_and_reach_the_others_is_good(listening, free_addresses):
    [own] = free_addresses(1)
    assert ports("chief 0", chief=[own], ps=[listening]) == [
        ("own port", "ok", f"{own} is free"),
        ("other tasks", "ok", "all listening: ps 0"),
    ]


def test_a_port_in_use_is_a_problem_with_its_remedy(listening):
    port = listening.rpartition(":")[2]
    assert ports("chief 0", chief=[listening]) == [
        (
            "own port",
            "problem",
            f"cannot listen on port {port} (Address already in use); end the program "
            "that has it (this task, if it runs already), or give another port",
        )
    ]


def test_tasks_that_are_not_started_and_names_that_lead_nowhere_differ(free_addresses):
    own, silent = free_addresses(2)
    [_, silence] = ports("chief 0", chief=[own], worker=[silent])
    assert silence == (
        "other tasks",
        "note",
        "nobody listens yet for worker 0; their machines answer, so start them",
    )
    [_, (about, state, text)] = ports("chief 0", chief=[own], ps=["no.invalid:2222"])
    assert (about, state) == ("other tasks", "problem")
    assert text == (
        "no way to ps 0 at no.invalid:2222; check the name or address, and the firewalls "
        "between"
    )
