"""What each kind of op does, by TensorFlow's definition and the table of this runtime."""

import fnmatch

import pytest
import tensorflow as tf

from estimator_runtime.tf_internals import op_kinds


def facts(name):
    """Return the facts that are true of a kind of op, of the table and of the class."""
    kind = op_kinds.of(name)
    own = (
        *("is_stateful", "is_random", "calls_functions", "takes_resource"),
        *("keeps_state", "may_wait", "may_change", "is_free_of_state"),
    )
    return {*kind.facts, *(each for each in own if getattr(kind, each))}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("MatMul", {"is_free_of_state"}),
        ("AddV2", {"is_free_of_state", "sums"}),
        ("Conv2D", {"is_free_of_state", "takes_long"}),
        (
            "Placeholder",
            {"is_free_of_state", "is_placeholder", "leaves_session_as_new"},
        ),
        ("PyFunc", {"calls_python", "is_stateful", "may_wait"}),
        ("PyFuncStateless", {"calls_python", "is_free_of_state", "may_wait"}),
        ("EagerPyFunc", {"calls_python", "is_stateful", "may_wait"}),
        ("StatefulPartitionedCall", {"calls_functions", "is_stateful", "may_wait"}),
        ("VarHandleOp", {"is_stateful", "is_variable", "keeps_state", "may_wait"}),
        ("ReadVariableOp", {"is_stateful", "reads_variable", "takes_resource"}),
        (
            "AssignAddVariableOp",
            {"assigns", "is_stateful", "may_change", "takes_resource", "updates"},
        ),
        (
            "ResourceApplyAdam",
            {"is_stateful", "may_change", "optimizes", "takes_resource"},
        ),
        ("RandomUniform", {"is_random", "is_stateful"}),
        ("QueueDequeueV2", {"is_stateful", "may_change", "may_wait", "takes_resource"}),
        (
            "IteratorGetNext",
            {
                *("is_asynchronous", "is_stateful", "may_change", "may_wait"),
                *("reads_files_or_data", "takes_resource"),
            },
        ),
        ("LookupTableFindV2", {"is_stateful", "reads_table", "takes_resource"}),
        (
            "WriteScalarSummary",
            {"is_stateful", "may_wait", "takes_resource", "writes_summary"},
        ),
        ("Merge", {"is_control_flow_v1", "is_free_of_state", "passes_handle_on"}),
        (
            "CollectiveReduceV2",
            {
                *("communicates", "is_stateful", "keeps_state", "may_change"),
                *("may_wait", "takes_resource"),
            },
        ),
        ("a_function_of_the_program", {"calls_functions", "keeps_state", "may_wait"}),
    ],
)
def test_a_kind_of_op_is_known_by_what_it_does(name, expected):
    implied = {
        *("has_observable_end", "is_known_stateless", "is_of_table"),
        *("leaves_session_as_new", "never_waits", "writes_variable"),
    }
    assert facts(name) - implied == expected - implied


# No copy of them takes the state along: it is in the kernel, or in the name.
@pytest.mark.parametrize(
    "name",
    """
    AddSparseToTensorsMap Barrier CollectiveReduceV2 FIFOQueueV2 HashTableV2 IteratorV2
    RandomShuffleQueueV2 RecordInput ShuffleDatasetV3 Skipgram Stage
    TakeManySparseFromTensorsMap TemporaryVariable Unstage VarHandleOp VariableV2
    _ReadVariablesOp
    """.split(),
)
def test_an_op_whose_state_is_in_its_kernel_or_name_keeps_state(name):
    kind = op_kinds.of(name)
    assert kind.is_stateful
    assert kind.keeps_state


@pytest.mark.parametrize(
    "name",
    """
    AssignAddVariableOp BoostedTreesTrainingPredict IteratorGetNext LookupTableFindV2
    Multinomial QueueDequeueV2 RandomShuffle RandomUniform ReaderReadV2
    ResourceApplyAdam RngReadAndSkip TensorArrayWriteV3 WriteScalarSummary
    """.split(),
)
def test_an_op_that_takes_its_state_by_a_handle_or_has_a_generator_keeps_none(name):
    kind = op_kinds.of(name)
    assert kind.is_stateful
    assert kind.takes_resource or kind.is_random
    assert not kind.keeps_state


@pytest.mark.parametrize("fact", op_kinds.FACTS)
def test_each_type_of_the_table_is_one_of_this_tensorflow(fact):
    for each in op_kinds.FACTS[fact].split():
        if "*" in each:
            assert fnmatch.filter(dir(tf.raw_ops), each), each
        else:
            assert op_kinds.of(each).is_defined, each
