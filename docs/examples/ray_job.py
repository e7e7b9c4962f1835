"""Starts a program on the nodes of a Ray cluster, a rank on each of its processors, or as many as
you ask for. Ray places the ranks and carries the job's secret; Gyre does the rest.

  ray job submit --working-dir . -- python ray_job.py 8 ./train
  python ray_job.py 8 ./train           # on a node of the cluster
"""
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=1, max_restarts=0)
class Rank:
    def address(self):
        """Of this rank's node, and a TCP port that is free there now."""
        address = ray.util.get_node_ip_address()
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.bind((address, 0))
            return address, probe.getsockname()[1]

    def run(self, command, folder, variables, secret):
        """Line by line what the program says, then its exit code. It runs in the folder, where this
        node has that."""
        with tempfile.NamedTemporaryFile() as file:  # of mode 0600
            file.write(secret)
            file.flush()
            environment = {**os.environ, **variables, "GYRE_RENDEZVOUS_SECRET_FILE": file.name}
            with subprocess.Popen(command, env=environment, text=True, errors="replace",
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT,
                                  cwd=folder if os.path.isdir(folder) else None) as program:
                for line in program.stdout:
                    yield line.rstrip("\n")
        yield program.returncode


def follow(rank, said, ends):
    """Prints what a rank says, and passes its exit code on."""
    code = 1  # if its node is lost
    try:
        for each in said:
            value = ray.get(each)
            if isinstance(value, int):
                code = value
            else:
                print(f"[{rank}] {value}", flush=True)
    finally:
        ends.put((rank, code))


def places(nodes):
    """(rank, local rank, local size) of each rank, by the addresses of their nodes."""
    return [(rank, nodes[:rank].count(node), nodes.count(node)) for rank, node in enumerate(nodes)]


def main(ranks, command):
    ray.init(address="auto")
    group = placement_group([{"CPU": 1}] * ranks, strategy="PACK")
    if not group.wait(60):
        sys.exit(f"the cluster has no {ranks} free processors")
    workers = [Rank.options(scheduling_strategy=PlacementGroupSchedulingStrategy(
        group, placement_group_bundle_index=i)).remote() for i in range(ranks)]
    addresses = ray.get([worker.address.remote() for worker in workers])
    host, port = addresses[0]
    meeting = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    secret = os.urandom(32)
    ends = queue.Queue()
    for worker, (rank, local, size) in zip(workers, places([each for each, _ in addresses])):
        variables = {"GYRE_RANK": str(rank), "GYRE_SIZE": str(ranks),
                     "GYRE_LOCAL_RANK": str(local), "GYRE_LOCAL_SIZE": str(size),
                     "GYRE_RENDEZVOUS_ADDRESS": meeting}
        said = worker.run.remote(command, os.getcwd(), variables, secret)
        threading.Thread(target=follow, args=(rank, said, ends), daemon=True).start()
    code = 0
    for _ in range(ranks):  # the first that fails ends all
        rank, code = ends.get()
        if code != 0:
            print(f"rank {rank} ended with {code}", file=sys.stderr, flush=True)
            break
    ray.shutdown()
    return abs(code)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: ray_job.py RANKS PROGRAM [ARGUMENT...]")
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
