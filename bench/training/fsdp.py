#!/usr/bin/env python3
"""Time of one step of a fully sharded model (FSDP2): two ranks by Gyre, by gloo and not at all.

The multi-layer perceptron of ddp.py, each layer a unit, on two processes of this machine with one
thread each (tools/dev torch --shell has the Python for it). All contenders take turns within each
round, in the same processes and in another order each time; medians are compared. "own memory":
FSDP2 takes its buffers from the process group (set_allocate_memory_from_process_group_for_comm) if
the backend has memory that peers reach directly. Each backend is shown with its best setting.
"""

import argparse

import ddp
import pair

OWN_MEMORY = ", own memory"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--width", type=int, default=1024,
                        help="width of a layer (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=7,
                        help="hidden layers (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=64,
                        help="examples per rank (default: %(default)s)")
    ddp.add_repeats(parser)
    return parser.parse_args()


def shard(model, group, own_memory):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in [*model, model]:
        if layer is model or list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
            if own_memory:
                layer.set_allocate_memory_from_process_group_for_comm(True)


class Way(ddp.Way):
    def __init__(self, name, options, group=None):
        super().__init__(name, options)
        if group is not None:
            import torch
            shard(self.model, group, name.endswith(OWN_MEMORY))
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)


def measure(options):
    rank, groups = pair.join()
    ways = [Way(ddp.FLOOR, options)]
    for name, group in groups.items():
        ways += [Way(f"2 by {name}", options, group),
                 Way(f"2 by {name}{OWN_MEMORY}", options, group)]
    pair.leave(rank, {"parameters": ways[0].parameters, "times": ddp.take_turns(ways, options)})


def main():
    options = arguments()
    if pair.is_rank():
        measure(options)
        return
    launches = ddp.launch(options)
    medians = ddp.show(launches, options)
    if options.record:
        ddp.record(medians, launches, options, "bench/training/fsdp.py")


if __name__ == "__main__":
    main()
