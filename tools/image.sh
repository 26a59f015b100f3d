#!/usr/bin/env bash
# Builds the Dockerfile's image for CPUs without a Docker engine, and trains in it:
#
#   apt-get install buildah debootstrap && tools/image.sh
#
# As root, on Debian; ten minutes and 10 GB. The base is Debian 12 with its Python 3.11, made
# here under the name of the official image, which may be out of reach: what the official
# one has besides is not tried. BASE=official takes that.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

buildah() { command buildah --storage-driver vfs "$@"; }
work=$(mktemp -d)
made=()
trap 'for each in "${made[@]}"; do buildah rm "$each" >/dev/null; done; rm -rf "$work"' EXIT

if [ "${BASE:-}" != official ]; then
  debootstrap --variant=minbase --include=python3,python3-pip,ca-certificates \
    bookworm "$work/root" >"$work/debootstrap.log" ||
    { tail -n 5 "$work/debootstrap.log" >&2; exit 1; }
  ln -s python3 "$work/root/usr/bin/python"
  # The official image's pip installs beside no distribution's packages.
  rm "$work/root/usr/lib/python3.11/EXTERNALLY-MANAGED"
  # As this machine reaches the package index.
  if [ -f /etc/pip.conf ]; then cp /etc/pip.conf "$work/root/etc/"; fi
  cp -L /etc/ssl/certs/ca-certificates.crt "$work/root/etc/ssl/certs/"
  base=$(buildah from scratch)
  made+=("$base")
  buildah copy --quiet "$base" "$work/root" / >/dev/null
  buildah commit --quiet "$base" docker.io/library/python:3.11-slim >/dev/null
fi

buildah bud $([ "${BASE:-}" = official ] || echo --pull-never) --isolation chroot --tag estimator-runtime .
job=$(buildah from --pull-never localhost/estimator-runtime)
made+=("$job")
run() { buildah run --isolation chroot "$job" -- "$@"; }

# As the user of the image, whose health is bad before the training and good after it.
[ "$(run id -un)" = trainer ]
if run sh -c 'exec estimator-runtime checkpoints "$MODEL_DIR"'; then
  echo "the image is healthy before it has trained" >&2
  exit 1
fi
run sh -c 'exec estimator-runtime run examples/digits.py --model_dir "$MODEL_DIR"'
run sh -c 'exec estimator-runtime checkpoints "$MODEL_DIR"'
