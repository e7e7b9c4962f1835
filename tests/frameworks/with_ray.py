"""Ray Train's TorchTrainer with two workers on this machine."""

import os

import ray
import ray.train
import ray.train.torch
import torch

import trained_model

chosen = trained_model.options()


def train_loop():
    rank = ray.train.get_context().get_world_rank()
    model = ray.train.torch.prepare_model(trained_model.Model(chosen.width))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = ray.train.torch.prepare_data_loader(torch.utils.data.DataLoader(
        trained_model.Tokens(chosen.batch * chosen.steps * 2), batch_size=chosen.batch))
    report = trained_model.Report(chosen, rank)
    for batch in loader:
        optimizer.zero_grad()
        loss = model(**batch)
        loss.backward()
        optimizer.step()
        whole = loss.detach().clone()
        torch.distributed.all_reduce(whole)
        report.step(whole / 2)
    ray.train.report({"loss": report.losses[-1]})  # waits for its controller
    report.write()


ray.init(num_cpus=3, include_dashboard=False, object_store_memory=100_000_000,
         _temp_dir=os.environ.get("RAY_TMPDIR"))
trainer = ray.train.torch.TorchTrainer(
    train_loop, scaling_config=ray.train.ScalingConfig(num_workers=2),
    run_config=ray.train.RunConfig(name="made_up", storage_path=os.path.dirname(chosen.report)))
trainer.fit()
