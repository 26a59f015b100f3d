"""What each kind of op does, by TensorFlow's definition and the table of this runtime."""

import fnmatch

import pytest
import tensorflow as tf

from estimator_runtime.tf_internals import op_kinds


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
