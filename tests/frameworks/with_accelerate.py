"""Accelerate's loop. Started by torchrun."""

import accelerate
import torch

import trained_model

chosen = trained_model.options()
# Accelerate takes MPI where PyTorch has it, as Debian's does, unless it is told.
accelerator = accelerate.Accelerator(
    cpu=True, kwargs_handlers=[accelerate.utils.InitProcessGroupKwargs(backend="gloo")])
model = trained_model.Model(chosen.width)
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.AdamW(model.parameters(), lr=1e-3),
    torch.utils.data.DataLoader(trained_model.Tokens(chosen.batch * chosen.steps * 2),
                                batch_size=chosen.batch))
report = trained_model.Report(chosen, accelerator.process_index)
for batch in loader:
    optimizer.zero_grad()
    loss = model(**batch)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    report.step(accelerator.gather(loss.detach()).mean())
accelerator.wait_for_everyone()
report.write()
accelerator.end_training()
