"""DeepSpeed's engine, by ZeRO's stage 1, 2 or 3. Started by deepspeed or torchrun."""

import deepspeed
import torch
from torch.utils.data import DataLoader, DistributedSampler

import trained_model

chosen = trained_model.options()
deepspeed.init_distributed()
model = trained_model.Model(chosen.width)
engine, optimizer, _, _ = deepspeed.initialize(
    model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    config={"train_micro_batch_size_per_gpu": chosen.batch, "gradient_clipping": 1.0,
            "zero_optimization": {"stage": chosen.stage}, "zero_allow_untested_optimizer": True})
rank = torch.distributed.get_rank()
data = trained_model.Tokens(chosen.batch * chosen.steps * 2)
report = trained_model.Report(chosen, rank)
for batch in DataLoader(data, chosen.batch, sampler=DistributedSampler(data, shuffle=False)):
    loss = engine(**batch)
    engine.backward(loss)
    engine.step()
    whole = loss.detach().clone()
    deepspeed.comm.all_reduce(whole)
    report.step(whole / 2)
report.write()
torch.distributed.destroy_process_group()
