"""Transformers' Trainer with a GPT-2 from a config. Started by torchrun."""

import tempfile

import transformers

import trained_model

chosen = trained_model.options()
transformers.set_seed(7)
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
    vocab_size=trained_model.VOCABULARY, n_positions=trained_model.LENGTH, n_embd=chosen.width,
    n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
arguments = transformers.TrainingArguments(
    output_dir=tempfile.gettempdir(), use_cpu=True, ddp_backend="gloo", max_steps=chosen.steps,
    per_device_train_batch_size=chosen.batch, logging_steps=1, save_strategy="no", report_to=[],
    learning_rate=1e-3, disable_tqdm=True)
report = trained_model.Report(chosen, arguments.process_index)


class Steps(transformers.TrainerCallback):
    """Reports what the Trainer logs."""

    def on_log(self, args, state, control, logs=None, **others):
        if "loss" in logs:
            report.step(logs["loss"])

    def on_step_end(self, args, state, control, **others):
        if args.process_index != 0:
            report.step(0)


trainer = transformers.Trainer(model, arguments, callbacks=[Steps()],
                               train_dataset=trained_model.Tokens(chosen.batch * chosen.steps * 2))
trainer.train()
report.write()
