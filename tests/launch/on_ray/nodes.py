"""A Ray cluster of several nodes on this machine; it ends with its standard input.

Each node is a raylet with a loopback address of its own. A line on standard input is a
JSON object of arguments for one more node. After the start, and after each line, what
there is is written as one JSON line: the address of the cluster, and for each node its
address, id and the pid of its raylet.
"""

import json
import sys

from ray.cluster_utils import Cluster

_NODE = {"num_cpus": 2, "object_store_memory": 80_000_000, "include_dashboard": False}


def tell(cluster):
    nodes = [
        {
            "address": node.node_ip_address,
            "id": node.node_id,
            "pid": node.all_processes["raylet"][0].process.pid,
        }
        for node in cluster.list_all_nodes()
    ]
    print(json.dumps({"address": cluster.address, "nodes": nodes}), flush=True)


cluster = Cluster(
    initialize_head=True,
    head_node_args={
        **_NODE,
        "num_cpus": 1,
        # Not 127.0.0.1, which Ray takes for any address of this machine.
        "node_ip_address": "127.0.0.2",
        # A Python for each CPU as soon as somebody connects: too much for a test.
        "_system_config": {"prestart_worker_first_driver": False},
    },
)
cluster.add_node(**_NODE, node_ip_address="127.0.0.3")
cluster.add_node(**_NODE, node_ip_address="127.0.0.4")
tell(cluster)
for line in sys.stdin:
    cluster.add_node(**{**_NODE, **json.loads(line)})
    tell(cluster)
cluster.shutdown()
