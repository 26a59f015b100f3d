"""What is shown of Ray's errors."""


def test_an_error_of_several_lines_is_one():
    from estimator_runtime.launch.backends.ray.errors import brief

    error = RuntimeError(
        "Version mismatch: The cluster was started with:\n"
        "    Ray: 2.59.0\n    Python: 3.10.1\n"
        "This process on 10.0.0.1 was started with:\n"
        "    Ray: 2.60.0\n    Python: 3.11.7\n"
    )
    assert brief(error) == (
        "Version mismatch: The cluster was started with: Ray: 2.59.0 Python: 3.10.1 This "
        "process on 10.0.0.1 was started with: Ray: 2.60.0 Python: 3.11.7"
    )


def test_of_an_actor_that_is_gone_it_is_why():
    from ray.core.generated.common_pb2 import ActorDiedErrorContext
    from ray.exceptions import ActorDiedError

    from estimator_runtime.launch.backends.ray.errors import brief

    context = ActorDiedErrorContext(
        actor_id=b"0" * 16,
        class_name="TaskActor",
        pid=7,
        node_ip_address="10.0.0.1",
        error_message="The actor is dead because its worker process has died. Worker "
        "exit type: SYSTEM_ERROR Worker exit detail: End of file. " + "Advice. " * 50,
    )
    text = brief(ActorDiedError(context))
    assert text.startswith(
        "The actor is dead because its worker process has died. Worker exit type: "
        "SYSTEM_ERROR Worker exit detail: End of file. Advice. "
    )
    assert len(text) <= 300 and text.endswith(" ...")


def test_of_an_actor_whose_node_is_gone_it_is_why_without_numbers():
    from ray.core.generated.common_pb2 import ActorDiedErrorContext
    from ray.exceptions import ActorDiedError

    from estimator_runtime.launch.backends.ray.errors import brief

    context = ActorDiedErrorContext(
        actor_id=b"0" * 16,
        class_name="TaskActor",
        error_message="The actor died because its node has died. Node Id: 3cb819df\n"
        "\tthe actor's node was terminated unexpectedly: too few heartbeats",
    )
    assert brief(ActorDiedError(context)) == (
        "The actor died because its node has died. the actor's node was terminated "
        "unexpectedly: too few heartbeats"
    )


def test_of_an_actor_that_could_not_be_made_it_is_the_last_line_of_its_error():
    from ray.exceptions import ActorDiedError, RayTaskError

    from estimator_runtime.launch.backends.ray.errors import brief

    cause = FileNotFoundError(2, "No such file or directory", "/folder")
    traceback = f"Traceback (most recent call last):\nFileNotFoundError: {cause}"
    error = RayTaskError("__init__", traceback, cause, pid=1, ip="10.0.0.1")
    assert brief(ActorDiedError(error)) == (
        "FileNotFoundError: [Errno 2] No such file or directory: '/folder'"
    )
