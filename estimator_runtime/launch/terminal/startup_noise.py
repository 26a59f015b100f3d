"""The lines that TensorFlow's C++ half writes at its start, and that tell nothing."""

import re
import threading

# Of what glog writes before a text: severity, time, thread and file; of I (INFO) only.
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
    """Knows these lines, and counts them; may be used by several threads.

    Attributes:
        count: How many there were.
    """

    def __init__(self, expects_gpu):
        """Know whether the line that no GPU was found would tell something."""
        self._expects_gpu = expects_gpu
        self._lock = threading.Lock()
        self.count = 0

    def takes(self, line):
        """Tell whether this is one of the lines; then it is counted."""
        found = _ALWAYS.match(line)
        if found is None and not self._expects_gpu:
            found = _WITHOUT_GPU.match(line)
        if found is None:
            return False
        with self._lock:
            self.count += 1
        return True
