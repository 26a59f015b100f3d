"""What the step loop asks of hooks and session creators beyond TensorFlow's interface.

Each class is one thing that a hook or session creator of this runtime may offer, by
having its methods and attributes. It need not be derived from the class.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable


@runtime_checkable
class DerivedHook(Protocol):
    """A hook that is derived from one of TensorFlow's and has to see the same steps.

    Attributes:
        scheduled_as: The class of TensorFlow's. It holds for the class that has the
            attribute, and not for classes derived from it: those may do anything.
    """

    scheduled_as: ClassVar[type]


@runtime_checkable
class BackgroundHook(Protocol):
    """A hook that may still work in the background when its session has ended."""

    def finish_background_work(self) -> None:
        """Wait for that work, such as writing a checkpoint.

        It is called before another session is created, and when the session is closed,
        even after an error.
        """


@runtime_checkable
class RestoringCreator(Protocol):
    """A session creator that reads a folder of checkpoints.

    Attributes:
        checkpoint_dir: The folder, or None. If a training ends because its loss is NaN,
            the traceback names the newest checkpoint in it that has no NaN.
    """

    checkpoint_dir: Any


@runtime_checkable
class DisowningCreator(Protocol):
    """A session creator of a task whose variables may outlive its session."""

    def disown_values(self) -> None:
        """Prevent that another session goes on with the values: the loss is NaN."""


@runtime_checkable
class AdoptingCreator(Protocol):
    """A session creator that may go on with values that no checkpoint has.

    Attributes:
        may_adopt: Whether it may. A stop then waits for the session, whose end saves
            the values.
        leave: Set by the session. The creator calls it if there is nothing to adopt:
            from then on, a stop ends the program at once.
    """

    may_adopt: bool
    leave: Callable[[], None]
