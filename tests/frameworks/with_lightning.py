"""Lightning's Trainer. It starts the second rank itself."""

import lightning
import torch

import trained_model

chosen = trained_model.options()


class Learner(lightning.LightningModule):
    """The model with its loss and optimizer."""

    def __init__(self):
        super().__init__()
        self.model = trained_model.Model(chosen.width)
        self.report = None

    def training_step(self, batch, _):
        loss = self.model(**batch)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def on_train_start(self):
        self.report = trained_model.Report(chosen, self.global_rank)

    def on_train_batch_end(self, outputs, *_):
        self.report.step(self.trainer.callback_metrics["loss"])

    def on_train_end(self):
        self.report.write()


trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_steps=chosen.steps, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
data = trained_model.Tokens(chosen.batch * chosen.steps * 2)
trainer.fit(Learner(), torch.utils.data.DataLoader(data, batch_size=chosen.batch))
