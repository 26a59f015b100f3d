"""The op catalogue: what each kind of op reads, writes, calls, waits for and keeps.

TensorFlow's definition of an op says whether it is stateful, but not where its state
is, and neither what it changes nor what it waits for. The table of this module says
that. Whatever asks about a kind of op asks here, so a new TensorFlow needs changes in
this module only.

A stateful op may have its state in a resource, whose handle it takes: a copy of the op
takes the same handle and shares the state. Or the state is in the kernel: then a copy
has a new state. So an op counts as one that keeps state in its kernel unless it is one
of TensorFlow's own that takes a resource, or is known to keep none. Random ops have a
generator in their kernel; `is_random` tells them apart.
"""

import dataclasses
import functools
import re

import tensorflow as tf

from estimator_runtime.tf_internals import graphs

_RESOURCE = tf.resource.as_datatype_enum

# A fact about ops, which is an attribute of `OpKind`, to the types of ops that have it.
# A star stands for any characters.
FACTS = {
    "calls_python": "EagerPyFunc PyFunc PyFuncStateless",
    # What an op takes, and does with it.
    "reads_variable": """
        DisableCopyOnRead ReadVariableOp ResourceGather ResourceGatherNd
        VarIsInitializedOp VariableShape
    """,
    "is_of_table": "LookupTable*",
    "reads_table": "LookupTableFind* LookupTableSize*",
    "writes_summary": "Write*Summary",
    "assigns": "Assign*",
    "writes_variable": "Assign* Resource*",
    "optimizes": "Apply* SparseApply* ResourceApply* ResourceSparseApply*",
    # Updates that are written without an optimizer. Plain assignments are not updates:
    # they initialize, restore or copy a whole variable.
    "updates": "AssignAdd* AssignSub* Scatter* ResourceScatter*",
    "accumulates": "ResourceAccumulatorApplyGradient SparseAccumulatorApplyGradient",
    "restores": "Restore RestoreSlice RestoreV2",
    # What an op makes.
    "is_variable": "VarHandleOp Variable VariableV2",
    "is_table": "HashTable HashTableV2",
    "initializes_table": """
        InitializeTable InitializeTableV2 InitializeTableFromTextFile
        InitializeTableFromTextFileV2 LookupTableImport LookupTableImportV2
    """,
    "is_iterator": "Iterator IteratorV2 OneShotIterator",
    "is_placeholder": "Placeholder",
    # Control flow of TensorFlow 1. Loops and branches that the Python API of
    # TensorFlow 2 builds call functions instead.
    "is_control_flow_v1": """
        Enter Exit LoopCond Merge NextIteration RefEnter RefExit RefMerge
        RefNextIteration RefSwitch Switch
    """,
    "passes_handle_on": "Enter Exit Identity Merge NextIteration Switch",
    # Waits and time.
    "communicates": "Collective* Nccl*",
    "never_waits": """
        Assert* Assign* CheckNumerics* LookupTable* Print* ResourceApply*
        ResourceScatter* ResourceSparseApply*
    """,
    # Its kernel runs on a thread of its own, and does not block the one that starts it.
    "is_asynchronous": "IteratorGetNext",
    "takes_long": "*Conv* *FFT* *While *For *Enter",
    # State. The first are stateful ops without one, although they take no resource.
    "is_known_stateless": """
        AnonymousHashTable AnonymousMutableDenseHashTable AnonymousMutableHashTable
        AnonymousMutableHashTableOfTensors Assert Case CheckNumerics CheckNumericsV2
        ConsumeMutexLock DatasetToSingleElement DeepCopy DeviceIndex EagerPyFunc Empty
        GuaranteeConst If InitializeTableFromDataset LoadAndRemapMatrix
        MergeV2Checkpoints NonDeterministicInts Print PrintV2 PyFunc RangeDataset
        ReduceDataset RestoreV2 SaveV2 StatefulPartitionedCall StatelessRandomGetAlg
        TensorArrayV3 TensorDataset TensorSliceDataset Timestamp While WriteFile
    """,
    # The state of a dataset is in its iterator, that of a collective op in its group.
    "is_dataset": "*Dataset *DatasetV2 *DatasetV3 *DatasetV4",
    # A session that has run these behaves like a new one, once its variables are set
    # again: their state is in variables, in tables that nobody changes, in the call
    # itself, or outside the session.
    "leaves_session_as_new": """
        AssignAddVariableOp AssignSubVariableOp AssignVariableOp DisableCopyOnRead
        ReadVariableOp ResourceGather ResourceGatherNd ResourceScatter*
        ResourceStridedSliceAssign VarHandleOp VarIsInitializedOp Variable
        VariableShape VariableV2 HashTable HashTableV2 LookupTableFind*
        LookupTableSize* TensorArray*V3 Assert CheckNumerics CheckNumericsV2
        DeviceIndex Empty GuaranteeConst Placeholder Print PrintV2 Timestamp
        Case If PartitionedCall StatefulPartitionedCall While
    """,
    # Not all of them are stateful by their definition.
    "reads_files_or_data": "*Dataset* *Iterator* *ReadFile* *MatchingFiles*",
    # A program can notice when their kernels are deleted.
    "has_observable_end": """
        *PyFunc* *Cache* *Snapshot* *SaveDataset* *Summary*Writer* *Collective*
    """,
    # Arithmetic that TensorFlow's optimizer may rearrange.
    "sums": "Add AddN AddV2",
    "returns_its_input": """
        Bitcast CheckNumerics CheckNumericsV2 EnsureShape ExpandDims Identity IdentityN
        PlaceholderWithDefault PreventGradient Reshape Snapshot Squeeze StopGradient
    """,
}
_PATTERNS = {
    fact: re.compile("|".join(re.escape(w).replace(r"\*", ".*") for w in types.split()))
    for fact, types in FACTS.items()
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpKind:
    """What is known about all ops of one type.

    Attributes:
        name: The type; that of a call of a function is the function's name.
        facts: The facts of the table that are true for it. Each is an attribute too.
        is_defined: Whether TensorFlow knows ops of the type; False for a function.
        is_stateful: Whether its definition says that it has state, somewhere.
        is_random: Whether TensorFlow seeds it, by the graph's seed and its own. Then
            its kernel has a random generator.
        calls_functions: Whether it calls functions, or is such a call itself.
        takes_resource: Whether it takes a resource, such as a variable.
        keeps_state: Whether it may keep state, or a name, in its kernel, which a copy
            of the op lacks. The generator of a random op does not count.
    """

    name: str
    facts: frozenset[str]
    is_defined: bool
    is_stateful: bool = False
    is_random: bool = False
    calls_functions: bool = True
    takes_resource: bool = False
    keeps_state: bool = True

    def __getattr__(self, fact: str) -> bool:
        if fact not in FACTS:
            raise AttributeError(fact)
        return fact in self.facts

    @property
    def may_wait(self) -> bool:
        """Whether it may wait for another call, step or task.

        Such as an op that takes an element from a queue or an iterator. Each stateful
        op may, but for those that are known, and so may any call of Python.
        """
        if self.calls_functions or self.name == "PyFuncStateless":
            return True
        is_prompt = self.reads_variable or self.is_random or self.never_waits
        return self.is_stateful and not is_prompt

    @property
    def may_change(self) -> bool:
        """Whether it may change a resource so that another op reads something else."""
        only_reads = self.reads_variable or self.reads_table or self.writes_summary
        return self.takes_resource and not only_reads

    @property
    def is_free_of_state(self) -> bool:
        """Whether its value depends on what it takes and on nothing else."""
        return self.is_defined and not self.is_stateful and not self.reads_files_or_data


@functools.lru_cache(maxsize=4096)  # programs name their functions
def of(name: str) -> OpKind:
    """Return what is known about ops of a type."""
    facts = frozenset(f for f, pattern in _PATTERNS.items() if pattern.fullmatch(name))
    definition = graphs.op_definition(name)
    if definition is None:
        return OpKind(name=name, facts=facts, is_defined=False)
    attributes = {each.name for each in definition.attr}
    kind = OpKind(
        name=name,
        facts=facts,
        is_defined=True,
        is_stateful=definition.is_stateful,
        is_random=definition.is_stateful and "seed2" in attributes,
        calls_functions=any("func" in each.type for each in definition.attr),
        takes_resource=any(a.type == _RESOURCE for a in definition.input_arg),
    )
    keeps_state = _keeps_state(kind, makes_resource="shared_name" in attributes)
    return dataclasses.replace(kind, keeps_state=keeps_state)


def _keeps_state(kind: OpKind, makes_resource: bool) -> bool:
    if not kind.is_stateful or kind.is_known_stateless:
        return False
    is_of_package = not hasattr(tf.raw_ops, kind.name)
    if is_of_package or kind.communicates or kind.is_dataset:
        return True
    return not (kind.takes_resource or (kind.is_random and not makes_resource))
