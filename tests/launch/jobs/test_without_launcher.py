"""Tasks that somebody else starts, each with a TF_CONFIG: they end, and fail, well."""

import re
import signal
import socket

import pytest

pytestmark = pytest.mark.long("tasks wait for each other until deadlines in seconds")


@pytest.mark.parametrize(
    "arguments", [["--strategy", "ps"], ["--steps", "5000", "--stop_at", "60"]]
)
def test_a_ps_and_an_evaluator_end_when_their_training_has(
    start, cluster_of, tmp_path, saved_step, arguments
):
    # The note of an earlier training in the same folder is not the end of this one.
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "training_finished.json").write_text(
        '{"step": 5, "id": "of an earlier training", "job": null}'
    )
    cluster = cluster_of("chief", "worker", "ps")
    types = ("ps", "evaluator", "worker", "chief")
    # Not forked: how Python and TensorFlow end is part of this test.
    tasks = [start(cluster, each, *arguments, within=("env",)) for each in types]
    assert [task.end() for task in tasks] == [0, 0, 0, 0], [t.text for t in tasks]
    assert list(tmp_path.glob("model/export/last/*/saved_model.pb"))
    assert saved_step() >= 60


def test_a_synchronous_training_ends_soon_for_all(start, cluster_of):
    cluster = cluster_of("chief", "worker", "ps")
    tasks = [
        start(cluster, task_type, "--sync", "2")
        for task_type in ("ps", "worker", "chief")
    ]
    # TensorFlow's chief would wait two minutes for a thread that never ends.
    assert [task.end(100) for task in tasks] == [0, 0, 0], [t.text for t in tasks]


def test_an_evaluator_outside_the_cluster_of_a_mirrored_strategy_works(
    start, cluster_of, tmp_path
):
    cluster = cluster_of("chief", "worker")
    types = ("evaluator", "worker", "chief")
    arguments = ("--strategy", "mwms")
    # Not forked, as above.
    tasks = [start(cluster, each, *arguments, within=("env",)) for each in types]
    assert [task.end() for task in tasks] == [0, 0, 0], [t.text for t in tasks]
    assert list(tmp_path.glob("model/eval/events.*"))
    assert list(tmp_path.glob("model/export/last/*/saved_model.pb"))


def test_a_chief_that_comes_back_adopts_the_live_ps(start, cluster_of, tmp_path):
    cluster = cluster_of("chief", "ps")
    arguments = ("--save_steps", "10000", "--gate", "40:go_on")
    ps = start(cluster, "ps", *arguments)
    first = start(cluster, "chief", *arguments)
    first.wait_for_step(40)
    first.process.send_signal(signal.SIGKILL)
    first.end()
    (tmp_path / "go_on").touch()
    second = start(cluster, "chief", *arguments)
    assert (second.end(), ps.end()) == (0, 0), second.text
    assert min(second.steps) > max(first.steps) - 1


def test_a_chief_that_comes_back_after_the_nan_of_a_worker_restores_its_checkpoint(
    start, cluster_of
):
    cluster = cluster_of("chief", "worker", "ps")
    start(cluster, "ps")
    first = start(cluster, "chief", "--gate", "40:go_on")
    first.wait_for_step(40)
    worker = start(cluster, "worker", "--nan_at", "0")
    assert worker.end() == 1
    assert "NanLossDuringTrainingError" in worker.text.splitlines()[-1]
    first.process.kill()
    first.end()
    second = start(cluster, "chief")
    assert second.end() == 0, second.text
    assert "the parameter servers are alive" not in second.text


def test_a_second_job_on_the_ps_of_a_live_one_is_refused_and_the_other_goes_on(
    start, cluster_of, tmp_path
):
    cluster = cluster_of("chief", "ps")
    arguments = ("--gate", "20:go_on")
    ps = start(cluster, "ps", *arguments)
    first = start(cluster, "chief", *arguments)
    first.wait_for_step(20)
    other = start(
        {**cluster_of("chief"), "ps": cluster["ps"]}, "chief", "--model_dir", "other"
    )
    assert other.end() == 1
    assert (
        "TF_CONFIG: cluster['ps'] is in use by another training, of the chief at "
        f"'{cluster['chief'][0]}' with the model_dir '{tmp_path}/model'; start parameter "
        "servers of your own, or end that training first\n"
    ) in other.text
    (tmp_path / "go_on").touch()
    assert (first.end(), ps.end()) == (0, 0), first.text
    assert first.steps == sorted(first.steps)
    # Its session was not lost, which TensorFlow does not always notice.
    assert "the parameter servers are alive" not in first.text


def test_a_ps_that_never_comes_is_named_at_the_deadline(start, cluster_of):
    cluster = cluster_of("chief", "worker", "ps")
    task = start(cluster, "chief", "--timeout_secs", "3")
    assert task.end() == 1
    assert task.text.splitlines()[-1].endswith(
        f"no answer from ps 0 at {cluster['ps'][0]} for 3 s "
        "(session_creation_timeout_secs is 3), and no session can be created without "
        "it; giving up"
    )


def test_a_chief_that_never_comes_is_named_at_the_deadline(start, cluster_of):
    cluster = cluster_of("chief", "worker", "ps")
    start(cluster, "ps").wait_until_it_listens(*cluster["ps"])
    worker = start(cluster, "worker", "--timeout_secs", "8")
    assert worker.end() == 1
    assert worker.text.splitlines()[-1].endswith(
        f"the model was not initialized by chief 0 at {cluster['chief'][0]} within 8 s "
        "(session_creation_timeout_secs); is it running?"
    )


@pytest.mark.parametrize("killed", ["worker", "chief"])
def test_a_task_of_a_mirrored_strategy_that_is_gone_ends_the_others(
    start, cluster_of, killed
):
    cluster = cluster_of("chief", "worker")
    arguments = ("--strategy", "mwms", "--steps", "1000000", "--step_secs", "0.02")
    tasks = {each: start(cluster, each, *arguments) for each in ("chief", "worker")}
    for task in tasks.values():
        # In the meantime they have asked each other.
        task.wait_for_step(200)
    tasks.pop(killed).process.kill()
    [left] = tasks.values()
    assert left.end() == 1
    assert left.text.splitlines()[-1] == (
        f"{killed} 0 at {cluster[killed][0]} has ended, and no step can end without it; "
        "ending as well, to be started again together"
    )


def test_a_task_of_a_mirrored_strategy_that_loses_its_session_makes_no_other(
    start, cluster_of
):
    cluster = cluster_of("chief", "worker")
    arguments = ("--strategy", "mwms", "--steps", "1000000", "--step_secs", "0.01")
    chief = start(cluster, "chief", *arguments)
    worker = start(cluster, "worker", *arguments, "--fail_in", "hook")
    assert worker.end() == 1
    assert "UnavailableError: a service that is away" in worker.text.splitlines()[-1]
    assert max(worker.steps) == 30
    assert chief.end() == 1


def test_tasks_of_a_mirrored_strategy_restore_what_their_chief_has_checked(
    start, cluster_of, tmp_path
):
    cluster = cluster_of("chief", "worker")
    for last in ("40", "60"):
        arguments = ("--strategy", "mwms", "--steps", last)
        tasks = [start(cluster, each, *arguments) for each in ("chief", "worker")]
        assert [task.end() for task in tasks] == [0, 0], [t.text for t in tasks]
        if last == "40":
            [data] = tmp_path.glob("model/model.ckpt-40.data-*")
            content = bytearray(data.read_bytes())
            content[0] ^= 1
            data.write_bytes(content)
    assert list(tmp_path.glob("model/damaged/model.ckpt-40.index"))
    assert "has a wrong checksum for" in tasks[0].text
    for task in tasks:
        assert min(task.steps) < 40 < max(task.steps)


def test_a_ps_without_any_trainer_gives_up_at_the_deadline(start, cluster_of):
    ps = start(cluster_of("chief", "ps"), "ps", "--timeout_secs", "2")
    assert ps.end() == 1
    assert re.search(
        r"no answer from chief 0 for \d s \(session_creation_timeout_secs is 2\), and this "
        r"ps waits for them; giving up$",
        ps.text.splitlines()[-1],
    )


def test_a_port_in_use_is_named(start, cluster_of):
    with socket.create_server(("", 0)) as taken:
        cluster = {
            "chief": [f"127.0.0.1:{taken.getsockname()[1]}"],
            **cluster_of("ps"),
        }
        chief = start(cluster, "chief")
        assert chief.end() == 1
    assert (
        f"TF_CONFIG: chief 0 cannot listen on '{cluster['chief'][0]}'"
    ) in chief.text.splitlines()[-1]
