"""Stateful ops that may be copied, because their state is not in the kernel.

A loop of steps has copies of the step's ops, under other names. TensorFlow marks an op
as stateful without saying where its state is. It may be in a resource: then the copy
takes the same handle and shares the state. Or it may be in the kernel: then the copy
has a new state. So only ops that are known to keep their state in a resource, or to
keep none, are copied. Ops that draw random numbers are an exception: they keep a
generator in the kernel, and `random_ops` handles them.
"""

from collections.abc import Iterable

import tensorflow as tf

from estimator_runtime.compat import internals
from estimator_runtime.loop.graph import ops

# Types of TensorFlow's stateful ops, grouped by where their state is.
COPYABLE = {
    # Variables: the value belongs to the handle.
    *"""
    AssignAddVariableOp AssignSubVariableOp AssignVariableOp ConsumeMutexLock
    DestroyResourceOp DisableCopyOnRead MutexLock ReadVariableOp
    ResourceApplyAdaMax ResourceApplyAdadelta ResourceApplyAdagrad
    ResourceApplyAdagradDA ResourceApplyAdagradV2 ResourceApplyAdam
    ResourceApplyAdamWithAmsgrad ResourceApplyAddSign
    ResourceApplyCenteredRMSProp ResourceApplyFtrl ResourceApplyFtrlV2
    ResourceApplyGradientDescent ResourceApplyKerasMomentum
    ResourceApplyMomentum ResourceApplyPowerSign ResourceApplyProximalAdagrad
    ResourceApplyProximalGradientDescent ResourceApplyRMSProp ResourceCountUpTo
    ResourceGather ResourceGatherNd ResourceScatterAdd ResourceScatterDiv
    ResourceScatterMax ResourceScatterMin ResourceScatterMul
    ResourceScatterNdAdd ResourceScatterNdMax ResourceScatterNdMin
    ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub
    ResourceScatterUpdate ResourceSparseApplyAdadelta ResourceSparseApplyAdagrad
    ResourceSparseApplyAdagradDA ResourceSparseApplyAdagradV2
    ResourceSparseApplyCenteredRMSProp ResourceSparseApplyFtrl
    ResourceSparseApplyFtrlV2 ResourceSparseApplyKerasMomentum
    ResourceSparseApplyMomentum ResourceSparseApplyProximalAdagrad
    ResourceSparseApplyProximalGradientDescent ResourceSparseApplyRMSProp
    ResourceStridedSliceAssign VarIsInitializedOp VariableShape
    """.split(),
    # Generators in a variable.
    *"""
    RngReadAndSkip RngSkip StatefulRandomBinomial StatefulStandardNormal
    StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform
    StatefulUniformFullInt StatefulUniformInt StatelessRandomGetAlg
    """.split(),
    # Seeded generators in the kernel: see `random_ops`.
    *"""
    AllCandidateSampler CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2
    CudnnRNNBackpropV3 CudnnRNNV2 CudnnRNNV3 FixedUnigramCandidateSampler
    LearnedUnigramCandidateSampler LogUniformCandidateSampler Multinomial
    NonDeterministicInts ParameterizedTruncatedNormal RandomCrop RandomGamma
    RandomPoisson RandomPoissonV2 RandomShuffle RandomStandardNormal
    RandomUniform RandomUniformInt SampleDistortedBoundingBox
    SampleDistortedBoundingBoxV2 ThreadUnsafeUnigramCandidateSampler
    TruncatedNormal UniformCandidateSampler
    """.split(),
    # Tables, iterators, queues, readers, accumulators and arrays: by handle.
    *"""
    InitializeTableFromDataset InitializeTableFromTextFileV2 InitializeTableV2
    IteratorGetDevice IteratorGetNext IteratorGetNextAsOptional
    IteratorGetNextSync IteratorToStringHandle LookupTableExportV2
    LookupTableFindV2 LookupTableImportV2 LookupTableInsertV2
    LookupTableRemoveV2 LookupTableSizeV2 MakeIterator
    MultiDeviceIteratorGetNextFromShard MultiDeviceIteratorInit QueueCloseV2
    QueueDequeueManyV2 QueueDequeueUpToV2 QueueDequeueV2 QueueEnqueueManyV2
    QueueEnqueueV2 QueueIsClosedV2 QueueSizeV2 ReaderNumRecordsProducedV2
    ReaderNumWorkUnitsCompletedV2 ReaderReadUpToV2 ReaderReadV2 ReaderResetV2
    ReaderRestoreStateV2 ReaderSerializeStateV2 ResourceAccumulatorApplyGradient
    ResourceAccumulatorNumAccumulated ResourceAccumulatorSetGlobalStep
    ResourceAccumulatorTakeGradient TensorArrayCloseV3 TensorArrayConcatV3
    TensorArrayGatherV3 TensorArrayGradV3 TensorArrayGradWithShape
    TensorArrayReadV3 TensorArrayScatterV3 TensorArraySizeV3 TensorArraySplitV3
    TensorArrayV3 TensorArrayWriteV3
    """.split(),
    # Tables that each step creates for itself.
    *"""
    AnonymousHashTable AnonymousMutableDenseHashTable AnonymousMutableHashTable
    AnonymousMutableHashTableOfTensors
    """.split(),
    # Datasets that the step itself reads to the end.
    *"""
    DatasetToSingleElement RangeDataset ReduceDataset TensorDataset
    TensorSliceDataset
    """.split(),
    # Boosted trees: by handle.
    *"""
    BoostedTreesCenterBias BoostedTreesExampleDebugOutputs
    BoostedTreesFlushQuantileSummaries BoostedTreesGetEnsembleStates
    BoostedTreesPredict BoostedTreesQuantileStreamResourceAddSummaries
    BoostedTreesQuantileStreamResourceFlush
    BoostedTreesQuantileStreamResourceGetBucketBoundaries
    BoostedTreesTrainingPredict BoostedTreesUpdateEnsemble
    BoostedTreesUpdateEnsembleV2 IsBoostedTreesEnsembleInitialized
    IsBoostedTreesQuantileStreamResourceInitialized
    """.split(),
    # Summaries: by the handle of their writer.
    *"""
    CloseSummaryWriter CreateSummaryDbWriter CreateSummaryFileWriter
    FlushSummaryWriter ImportEvent WriteAudioSummary WriteGraphSummary
    WriteHistogramSummary WriteImageSummary WriteRawProtoSummary
    WriteScalarSummary WriteSummary
    """.split(),
    # Ops that use the clock or something outside the process, and keep nothing. Python
    # functions are looked up by their token.
    *"""
    Assert CheckNumerics CheckNumericsV2 DeepCopy DeviceIndex EagerPyFunc Empty
    GuaranteeConst LoadAndRemapMatrix MergeV2Checkpoints Print PrintV2 PyFunc
    RestoreV2 SaveV2 Timestamp WriteFile
    """.split(),
    # Calls: the ops of the functions are checked too.
    *"""
    Case If StatefulPartitionedCall While
    """.split(),
}


def find_uncopyable(graph: tf.Graph, operations: Iterable[tf.Operation]) -> str | None:
    """Return a description of the first op that may keep state in its kernel.

    Args:
        graph: The graph of the ops.
        operations: The ops. The functions that they call are checked too.

    Returns:
        A description such as "'lookup' (CountingOp)"; None if all ops may be copied.
    """
    operations = list(operations)
    functions = ops.called_functions(graph, operations)
    for op in operations:
        if op.type not in functions and _may_keep_state(op.type):
            return f"{op.name!r} ({op.type})"
    for name, function in sorted(functions.items()):
        for node in function.node_def:
            if node.op not in functions and _may_keep_state(node.op):
                return f"{node.name!r} ({node.op}) in the function {name!r}"
    return None


def _may_keep_state(kind: str) -> bool:
    """Return whether ops of a type may keep state in their kernel."""
    if kind in COPYABLE:
        return False
    definition = internals.op_definition(kind)
    return definition is None or definition.is_stateful
