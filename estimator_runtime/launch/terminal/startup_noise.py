"""A filter for the uninformative lines that TensorFlow's C++ code logs at startup."""

import re
import threading

# The prefix that glog writes: severity, time, thread and file. Only I (INFO) matches.
_INFO = r"(?:I\d{4} \S+ +\d+ |\d{4}-\d\d-\d\d \S+: I )(?:\S+/)?"
_ALWAYS = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\) is called are written "
    r"to STDERR$"
    rf"|{_INFO}port\.cc:\d+\] oneDNN custom operations are on\. "
    rf"|{_INFO}cpu_feature_guard\.cc:\d+\] This TensorFlow binary is optimized to use "
    r"|To enable the following instructions: [A-Z0-9_ ]+, in other operations, rebuild "
    r"TensorFlow with the appropriate compiler flags\.$"
    rf"|{_INFO}mlir_graph_optimization_pass\.cc:\d+\] MLIR V1 optimization pass is not "
    r"enabled$"
)
_WITHOUT_GPU = re.compile(
    rf"{_INFO}cudart_stub\.cc:\d+\] Could not find cuda drivers on your machine, GPU "
    r"will not be used\.$"
)


class Preamble:
    """Recognizes and counts startup lines; thread-safe.

    Attributes:
        count: The number of lines recognized so far.
    """

    def __init__(self, expects_gpu: bool) -> None:
        """Set which lines count.

        Args:
            expects_gpu: Whether a GPU is expected. If so, the line that reports that
                there is none is informative, and does not count.
        """
        self._expects_gpu = expects_gpu
        self._lock = threading.Lock()
        self.count = 0

    def takes(self, line: str) -> bool:
        """Return whether this is a startup line, and count it if so."""
        found = _ALWAYS.match(line)
        if found is None and not self._expects_gpu:
            found = _WITHOUT_GPU.match(line)
        if found is None:
            return False
        with self._lock:
            self.count += 1
        return True
