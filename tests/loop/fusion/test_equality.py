"""Fused steps are equal to stock's single steps: to the bit, and in all they leave."""

import pytest
import tensorflow as tf
from tensorflow.python.training import monitored_session

import estimator_runtime as er
from estimator_runtime.config import options

tf1 = tf.compat.v1

MODELS = ["linear", "dropout", "embedding", "batch norm", "cnn"]
OPTIMIZERS = ["SGD", "Momentum", "Adam", "Adagrad", "FTRL"]
STEPS_PER_RUN = [1, 2, 7, 100, "auto"]
# Each pair of two of the three is there; less of the model that takes long to build.
SELECTED = [
    (model, OPTIMIZERS[(row + column) % 5], steps_per_run)
    for row, model in enumerate(MODELS)
    for column, steps_per_run in enumerate(STEPS_PER_RUN)
]
SELECTED += [("wide and deep", "Adagrad", 7), ("wide and deep", "Adam", 100)]
# None of them a multiple of another, or of a number of steps per run.
INTERVALS = {
    "save_checkpoints_steps": 45,
    "save_summary_steps": 33,
    "log_step_count_steps": 10,
}


def update_ops_first(optimizer, loss, step):
    """Make a train op that runs the moving averages of batch normalization too."""
    updates = tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)
    return tf.group(optimizer.minimize(loss, step), updates)


@pytest.mark.parametrize("model, optimizer, steps_per_run", SELECTED)
def test_a_training_leaves_what_stock_leaves(model, optimizer, steps_per_run, training):
    this = training.replace(
        model=model, optimizer=optimizer, config=INTERVALS, train={"steps": 110}
    )
    if model == "batch norm":
        this = this.replace(make_train_op=update_ops_first)
    stock = this.stock()
    assert this.ours(steps_per_run) == stock
    assert stock.error is None
    assert stock.checkpoints == [0, 45, 90, 110]
    assert sum(line.startswith("loss = ") for line in stock.log) == 11
    assert stock.log[-1].startswith("Loss for final step: ")
    assert {step for step, *_ in stock.summaries} > {1, 34, 67, 100}


def test_training_resumes_from_a_checkpoint_in_the_middle(training, tmp_path):
    this = training.replace(model="embedding", optimizer="Adam", config=INTERVALS)
    outcomes = []
    for train, folder in (
        (this.stock, tmp_path / "stock"),
        (lambda folder: this.ours(7, folder), tmp_path / "ours"),
    ):
        first = train(folder=folder)
        second = train(folder=folder)
        assert second.checkpoints == [0, 20, 40]
        outcomes.append((first, second))
    # What has just been restored is not saved again, as it is in stock.
    outcomes[0][1].log.remove("Saving checkpoints for 20 into FOLDER/model.ckpt.")
    assert outcomes[0] == outcomes[1]


def test_single_steps_go_on_from_a_fused_run_and_the_other_way_round(
    training, tmp_path
):
    this = training.replace(optimizer="Momentum", config=INTERVALS)
    mixed, stock = tmp_path / "mixed", tmp_path / "stock"
    this.ours(7, folder=mixed)
    this.stock(folder=mixed)
    this.ours(1, folder=mixed)
    outcome = this.ours("auto", folder=mixed)
    assert outcome.checkpoints == [0, 20, 40, 60, 80]
    for _ in range(3):
        this.stock(folder=stock)
    assert outcome.variables == this.stock(folder=stock).variables


def test_what_a_program_has_around_its_calls_is_no_part_of_the_steps():
    def trained(make_session):
        with tf.Graph().as_default() as graph:
            calls = tf1.get_variable("calls", [], tf.int32, tf1.zeros_initializer())
            step = tf1.train.get_or_create_global_step().assign_add(1)
            bump = calls.assign_add(1).op
            with make_session(
                hooks=[tf1.train.StopAtStepHook(last_step=20)]
            ) as session:
                raw = session._tf_sess()
                with graph.control_dependencies([bump]), tf.device("/cpu:7"):
                    while not session.should_stop():
                        last = session.run(step)
                return last, raw.run(calls)

    assert trained(monitored_session.MonitoredTrainingSession) == (20, 0)
    with options.use(options.TrainingOptions(steps_per_run=7)):
        assert trained(er.MonitoredTrainingSession) == (20, 0)
