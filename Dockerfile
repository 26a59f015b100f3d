# The package on TensorFlow 2.21, and its example as the job to run. On CPUs:
#
#   docker build --tag estimator-runtime .
#   docker run --rm --init --stop-timeout 60 --volume estimator-model:/model \
#       estimator-runtime
#
# On GPUs of NVIDIA, whose libraries pip installs; the host has the driver and the
# NVIDIA Container Toolkit:
#
#   docker build --target gpu --tag estimator-runtime:gpu .
#   docker run --rm --init --stop-timeout 60 --gpus all \
#       --volume estimator-model:/model estimator-runtime:gpu
#
# --init passes SIGTERM on also while nothing is trained, and --stop-timeout is the time
# that the last step and its checkpoint have.
FROM python:3.11-slim AS wheel

WORKDIR /src

# setuptools first: constraints do not reach pip's isolated builds.
COPY constraints/tf-2.21.txt constraints/
RUN pip install --no-cache-dir --constraint constraints/tf-2.21.txt setuptools

COPY pyproject.toml setup.cfg setup.py README.md LICENSE ./
COPY estimator_runtime estimator_runtime
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .


FROM python:3.11-slim AS job

WORKDIR /app

# Training needs no root. A new volume mounted on /model takes over its owner. The group
# is the one that `estimator-runtime render` lets write to the volume of its pods.
RUN groupadd --gid 1000 trainer && useradd --create-home --uid 1000 --gid 1000 trainer \
    && install --directory --owner=trainer /model
ENV MODEL_DIR=/model PYTHONUNBUFFERED=1
VOLUME /model

COPY examples examples
COPY constraints/tf-2.21.txt constraints/
COPY --from=wheel /wheels /wheels

# Healthy is a training that a restart would go on with, from its newest checkpoint. It
# needs no TensorFlow; the first checkpoint has ten minutes.
HEALTHCHECK --start-period=10m --interval=1m --timeout=30s --retries=3 \
    CMD estimator-runtime checkpoints "$MODEL_DIR"

CMD ["sh", "-c", "exec estimator-runtime run examples/digits.py --model_dir \"$MODEL_DIR\""]


FROM job AS gpu

RUN pip install --no-cache-dir --constraint constraints/tf-2.21.txt \
        "tensorflow[and-cuda]" /wheels/*.whl
USER trainer


# The last stage is what is built by default.
FROM job AS cpu

RUN pip install --no-cache-dir --constraint constraints/tf-2.21.txt /wheels/*.whl
USER trainer
