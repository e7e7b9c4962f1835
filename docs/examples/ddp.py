"""Data-parallel training in PyTorch over Gyre, of the perceptron that train.cc trains without it:

    torchrun --nproc-per-node 2 ddp.py
"""
import torch
import torch.distributed as dist

EPOCHS, BATCH = 60, 16

dist.init_process_group("gyre")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)  # ranks share this host's cores
torch.manual_seed(0)      # the same points, and the same order in each epoch, on all ranks
points = 2 * torch.rand(1024, 2) - 1
targets = points[:, :1] * points[:, 1:]

model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
model = torch.nn.parallel.DistributedDataParallel(model)  # gradients: the mean over all ranks
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

losses = []
for epoch in range(EPOCHS):
    own = torch.randperm(len(points))[rank:len(points) - len(points) % ranks:ranks]
    total = torch.zeros(1)
    for part in own.split(BATCH):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(points[part]), targets[part])
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(part) / len(own)
    dist.all_reduce(total)
    losses.append(total.item() / ranks)
if rank == 0:
    print(f"loss {losses[0]:.5f} in the first epoch, {losses[-1]:.5f} in the last")
dist.destroy_process_group()
raise SystemExit(0 if losses[-1] < losses[0] / 10 else 1)
