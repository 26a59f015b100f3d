# The package on TensorFlow 2.21, and its example as the job to run:
#
#   docker build --tag estimator-runtime .
#   docker run --rm --volume estimator-model:/model estimator-runtime
FROM python:3.11-slim

WORKDIR /app

# setuptools first: constraints do not reach pip's isolated builds.
COPY constraints/tf-2.21.txt constraints/
RUN pip install --no-cache-dir --constraint constraints/tf-2.21.txt setuptools

COPY setup.cfg setup.py README.md LICENSE ./
COPY estimator_runtime estimator_runtime
RUN pip install --no-cache-dir --constraint constraints/tf-2.21.txt \
        --no-build-isolation . \
    && rm -r build estimator_runtime estimator_runtime.egg-info

COPY examples examples

# Training needs no root. A new volume mounted on /model takes over its owner.
RUN useradd --create-home trainer && install --directory --owner=trainer /model
USER trainer
VOLUME /model

CMD ["estimator-runtime", "run", "examples/digits.py", "--model_dir", "/model"]
