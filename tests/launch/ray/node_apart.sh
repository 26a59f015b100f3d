# A node of the Ray cluster $1 with address $2 that has a folder $3 of its own.
set -e
mount -t tmpfs tmpfs "$3"
exec "$4" -m ray.scripts.scripts start --block --address="$1" --node-ip-address="$2" \
  --num-cpus=1 --num-gpus=4 --object-store-memory=80000000
