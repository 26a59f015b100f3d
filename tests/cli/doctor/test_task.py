"""TF_CONFIG as a task understands it."""

import json

import pytest

from estimator_runtime.cli.doctor.finding import Subject
from estimator_runtime.cli.doctor.report import examine


def environ(own, **cluster):
    task_type, index = own.split()
    document = {"cluster": cluster, "task": {"type": task_type, "index": int(index)}}
    return {"TF_CONFIG": json.dumps(document)}


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
    [(_, found)] = examine(Subject(environ=variables), ["TF_CONFIG"])
    assert (found.state, found.text) == (state, text)
