"""What the last lines say of an error: at which line of the program, and why."""

import linecache
import re
import sys
import traceback
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from estimator_runtime import code_origin
from estimator_runtime.code_origin import Origin

_TRACEBACK = "Traceback (most recent call last):"
# Attributes of an error in code that AutoGraph has rewritten, and of one that Keras has
# raised again with the arguments of a layer.
_METADATA, _IS_OF_KERAS = "ag_error_metadata", "_keras_call_info_injected"
_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')
# Lines of a message of TensorFlow's that stand before the reason, and what stands
# before it on its line.
_BEFORE_REASON = re.compile(
    r"(?:[A-Z_]+: )?From /job:|\d+ root error\(s\) found|Graph execution error|=*$"
    r"|Detected at node |File \".+\", line \d+, in |Node: '"
    r"|Exception encountered when calling "
)
_OF_PIPELINE = re.compile(
    r"Error in user-defined function passed to \S+ transformation with iterator: "
    r"\S+: "
)
# Errors of an op that the type or the shape of its input may explain.
_OF_INPUT = ("InvalidArgumentError", "UnimplementedError")
# How many frames of the program, and how many lines in all, are shown.
_FRAMES, _LINES = 5, 40


def program_part(part: types.TracebackType | None) -> types.TracebackType | None:
    """Return a traceback with the frames of the program only.

    If the program is an installed package, they are those of all installed packages but
    TensorFlow's.
    """
    parts = []  # a loop, as there may be as many as Python allows calls
    while part is not None:
        parts.append(part)
        part = part.tb_next
    origins = [(each, code_origin.of_frame(each.tb_frame)) for each in parts]
    of_program = [each for each, origin in origins if origin in code_origin.OF_PROGRAM]
    if not of_program:
        wanted = code_origin.MAY_BE_PROGRAM
        of_program = [each for each, origin in origins if origin in wanted]
    rest = None
    for each in reversed(of_program):
        rest = types.TracebackType(rest, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return rest


def drop_first_raise(failure: BaseException) -> None:
    """Drop the error that TensorFlow's session has raised again, with a longer message.

    Python would show both, each with the frames of the session.
    """
    first = failure.__context__
    frames = [frame for frame, _ in traceback.walk_tb(failure.__traceback__)]
    is_raised_again = frames and frames[-1].f_code.co_name == "_do_call"
    if is_raised_again and _is_op_error(failure) and type(first) is type(failure):
        failure.__context__ = first.__context__


def shortened(failure: BaseException) -> str:
    """Return an exception as Python shows it, with the last frames of the program.

    What it was raised from comes last.
    """
    cause = failure.__cause__
    last = traceback.format_exception_only(cause)[-1:] if cause else []
    of_cause = [f"caused by {each.rstrip()}" for each in last]
    lines = [
        f"{_TRACEBACK}\n",
        *traceback.format_tb(program_part(failure.__traceback__), -_FRAMES),
        *traceback.format_exception_only(failure),
    ]
    return "\n".join([*"".join(lines).splitlines()[:_LINES], *of_cause])


def summary_of(failure: BaseException) -> str | None:
    """Return in one line what a framework has raised, and at which line of the program.

    It is the last line, so that nobody has to look for it in a hundred lines of
    TensorFlow. None if the program or a library that it called has raised the
    exception without a framework in between, a note explains it, or it is that of
    Ctrl-C. Errors in code that AutoGraph has rewritten, and lookups of missing
    features, always get a summary. Errors in rewritten code, and of a Python function
    in the graph, have all lines of their message.
    """
    if getattr(failure, "__notes__", ()) or isinstance(failure, KeyboardInterrupt):
        return None
    frames = [frame for frame, _ in traceback.walk_tb(failure.__traceback__)]
    given = _given_to_model(frames)
    if found := _of_rewritten_code(failure) or _of_lookup(failure, given):
        return found
    if not _is_inside_framework(frames):
        return None
    texts = _texts(failure)
    of_function = next(filter(None, map(_of_python_function, texts)), None)
    return of_function or _of_framework(failure, texts, given)


def _of_framework(
    failure: BaseException, texts: Sequence[str], given: Mapping[str, Any]
) -> str:
    """Return where the program calls a framework that fails, why, and with what."""
    what, kind = _reason(texts), type(failure).__name__
    # Where the program runs the op, or rather where it has made it, if that is known.
    op = getattr(failure, "op", None)
    made_at = getattr(op, "traceback", None) or ()
    place = _place_in_program([*traceback.extract_tb(failure.__traceback__), *made_at])
    if "is not in features dictionary" in what:
        what += f" The input_fn gives these: {_features(given)}."
    elif kind in _OF_INPUT and len(read := set(_read_by(op, given))) == 1:
        name = read.pop()
        label = name if name == "labels" else f"feature {name}"
        what += f" (the input_fn gives {label} as {_described(given[name])})"
    return f"{place}{kind}: {what}"


def _place_in_program(frames: Iterable[Any]) -> str:
    """Return the last place in the program, or an empty text.

    Args:
        frames: The file, the line, the function and more of each frame.
    """
    places = [f for f in frames if code_origin.of_file(f[0]) is Origin.PROGRAM]
    return _place(*places[-1]) if places else ""


def _place(file: str, line: Any, function: str | None, *_: Any) -> str:
    return f"{file}:{line}, in {function or '<lambda>'}: "


def _features(given: Mapping[str, Any]) -> str:
    return ", ".join(each for each in given if each != "labels")


def _of_lookup(failure: BaseException, given: Mapping[str, Any]) -> str | None:
    """Return where the program looks up a missing feature, or None."""
    if type(failure) is not KeyError or not given or str(failure) in given:
        return None
    *_, (frame, line) = traceback.walk_tb(failure.__traceback__)
    text = linecache.getline(frame.f_code.co_filename, line)
    if text.count("[") > 1:  # which lookup has failed?
        return None
    asked = [value for name, value in frame.f_locals.items() if f"{name}[" in text]
    names = [", ".join(map(repr, each)) for each in asked if isinstance(each, dict)]
    if (features := _features(given)) not in names:
        return None
    frames = traceback.extract_tb(failure.__traceback__)
    place = _place_in_program(frames) or _place(*frames[-1])
    return f"{place}KeyError: {failure}. The input_fn gives these: {features}."


def _of_rewritten_code(failure: BaseException) -> str | None:
    """Return where and why code has failed that AutoGraph rewrote, or None."""
    error, metadata = failure, getattr(failure, _METADATA, None)
    if metadata is None:
        return None
    # Both raise an error again, with a longer message, while they handle it.
    while (first := error.__context__) is not None:
        of_first = getattr(first, _METADATA, None)
        if of_first is not metadata and not hasattr(error, _IS_OF_KERAS):
            break
        error, metadata = first, of_first or metadata
    frames = traceback.extract_tb(failure.__traceback__)
    place = _place_in_program([*frames, *reversed(metadata.translated_stack)])
    return f"{place}{type(error).__name__}: {_reasons(str(error))}"


def _reasons(text: str) -> str:
    """Return the lines of a message that say why."""
    lines = [each for each in text.splitlines() if not _BEFORE_REASON.match(each)]
    return "\n".join(lines[:_LINES])


def _is_inside_framework(frames: Sequence[types.FrameType]) -> bool:
    """Return whether a framework, or a library below one, has raised an exception."""
    origins = [code_origin.of_frame(frame) for frame in frames]
    return Origin.FRAMEWORK in origins and origins[-1] not in code_origin.OF_PROGRAM


def _is_op_error(failure: BaseException | None) -> bool:
    errors: Any = sys.modules.get("tensorflow.python.framework.errors_impl")
    return errors is not None and isinstance(failure, errors.OpError)


def _texts(failure: Any) -> list[str]:
    """Return the messages of an exception, the one that is nearest to its reason first.

    TensorFlow's session raises an error with a longer message while it handles the
    first one.
    """
    if not _is_op_error(failure):
        return [str(failure)]
    first: Any = failure.__context__
    return [*([str(first.message)] if _is_op_error(first) else []), failure.message]


def _of_python_function(text: str) -> str:
    """Return where and why a Python function that the graph calls has failed, or "".

    The message of TensorFlow's error has that of the function's, then its traceback.
    """
    before, _, rest = text.partition(f"\n{_TRACEBACK}\n")
    place = _place_in_program(_FRAME.findall(rest.partition("[[{{node")[0]))
    return place and f"{place}{_OF_PIPELINE.sub('', _reasons(before))}"


def _given_to_model(frames: Sequence[types.FrameType]) -> Mapping[str, Any]:
    """Return what input_fn has given, as the first frame outside the program has it."""
    others = (
        f for f in frames if code_origin.of_frame(f) not in code_origin.OF_PROGRAM
    )
    return next(filter(None, map(_inputs, others)), {})


def _inputs(frame: types.FrameType) -> Mapping[str, Any]:
    """Return the features and labels that a frame has as variables, by what they are.

    It is empty if there is no dict of features.
    """
    features, labels = map(frame.f_locals.get, ("features", "labels"))
    if not isinstance(features, dict):
        return {}
    return {**{repr(name): each for name, each in features.items()}, "labels": labels}


def _read_by(op: Any, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of those inputs that an op computes its result from."""
    pairs = [(getattr(each, "name", None), name) for name, each in given.items()]
    names = {tensor: name for tensor, name in pairs if isinstance(tensor, str)}
    seen, todo = {op}, [op] if names else []
    while todo:
        for tensor in getattr(todo.pop(), "inputs", ()):
            if tensor.name in names:
                yield names[tensor.name]
            elif tensor.op not in seen:
                seen.add(tensor.op)
                todo.append(tensor.op)


def _described(tensor: Any) -> str:
    return f"{tensor.dtype.name}, shape {tensor.shape}"


def _reason(texts: Sequence[str]) -> str:
    """Return the line of a message that says why; TensorFlow writes it anywhere."""
    lines = [line.strip() for text in texts for line in str(text).splitlines()]
    return next((line for line in lines if not _BEFORE_REASON.match(line)), "")
