"""Whether all nodes of a Ray cluster see the same model directory."""

import contextlib
import os
import time
import uuid

import ray
from ray.exceptions import RayTaskError

from estimator_runtime.launch.ray_errors import brief

# A file system of the network may take a while until all see what one has written.
_SEEN_SECS = 5.0
_ANSWER_SECS = 30.0
_POLL_SECS = 0.5
_HERE = "the machine of the launcher"


def why_not_shared(path, actors):
    """Write a file from every node, and look for each from every node and from here.

    Args:
        path: The folder.
        actors: Address of each node to a `TaskActor` on it.

    Returns:
        Who does not see what of whom, or cannot write; None if all see the same folder.

    Raises:
        RayError: If it is not known, as an actor is gone or does not answer.
    """
    tokens = {
        node: os.path.join(path, f".estimator-runtime-{uuid.uuid4().hex}")
        for node in actors
    }
    try:
        writing = {
            node: actor.write_token.remote(tokens[node])
            for node, actor in actors.items()
        }
        for node, written in writing.items():
            problem = ray.get(written, timeout=_ANSWER_SECS)
            if problem is not None:
                return f"node {node} cannot write to model_dir {path!r}: {problem}"
        deadline = time.monotonic() + _SEEN_SECS
        while True:
            problem = _unseen(path, tokens, actors)
            if problem is None or time.monotonic() > deadline:
                return problem
            time.sleep(_POLL_SECS)
    except RayTaskError as error:
        return f"model_dir {path!r} cannot be looked at: {brief(error)}"
    finally:
        for token in tokens.values():  # an actor may be gone that has written one
            with contextlib.suppress(OSError):
                os.remove(token)
        for node, actor in actors.items():
            actor.remove_token.remote(tokens[node])


def _unseen(path, tokens, actors):
    names = list(tokens.values())
    seen = {
        f"node {node}": actor.seen_tokens.remote(names)
        for node, actor in actors.items()
    }
    found = {
        reader: ray.get(answer, timeout=_ANSWER_SECS) for reader, answer in seen.items()
    }
    found[_HERE] = [name for name in names if os.path.isfile(name)]
    for reader, there in found.items():
        for node, token in tokens.items():
            if token not in there:
                return (
                    f"{reader} does not see what node {node} writes to model_dir "
                    f"{path!r}; use a folder that all of them share"
                )
    return None
