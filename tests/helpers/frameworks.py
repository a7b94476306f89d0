"""One problem in every framework: a small network, SGD, and batches in a given order. Each returns the parameters."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

COUNTS = [14, 11, 7]
RATE = 0.5
Loss = Callable[..., Tensor]


class Samples(Dataset[tuple[Tensor, Tensor]]):
    """Inputs and targets. A share of the targets is missing."""

    def __init__(self, missing: float = 0.0) -> None:
        generator = torch.Generator().manual_seed(3)
        order = torch.randperm(sum(COUNTS), generator=generator)
        self.classes = torch.arange(3).repeat_interleave(torch.tensor(COUNTS))[order]
        self.inputs = torch.randn(len(order), 4, generator=generator) + torch.eye(4)[self.classes]
        self.targets = self.classes.masked_fill(torch.rand(len(order), generator=generator) < missing, -100)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.inputs[i], self.targets[i]


def network() -> nn.Sequential:
    generator = torch.Generator().manual_seed(5)
    made = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(generator=generator)
    return made


def parameters(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def plain(batches: Iterable[Any], loss: Loss) -> Tensor:
    """The reference: PyTorch alone, one step for each batch."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()
    return parameters(model)


def lightning(loader: DataLoader[Any], loss: Loss, **options: Any) -> Tensor:
    from lightning.pytorch import LightningModule, Trainer

    class Classifier(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.loss = network(), loss

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            return self.loss(self.network(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), RATE)

    model = Classifier()
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    Trainer(accelerator="cpu", max_epochs=1, **dict.fromkeys(quiet, False), **options).fit(model, loader)
    return parameters(model)


def accelerate(loader: DataLoader[Any], loss: Loss, steps: int = 1) -> Tensor:
    """Train with ``accelerator.accumulate``."""
    accelerator = _accelerator(gradient_accumulation_steps=steps)
    model = network()
    trained, optimizer, batches = accelerator.prepare(model, torch.optim.SGD(model.parameters(), RATE), loader)
    for inputs, targets in batches:
        with accelerator.accumulate(trained):
            accelerator.backward(loss(trained(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
    return parameters(model)


def accelerate_by_labels(loader: DataLoader[Any], loss: Loss, steps: int) -> Tensor:
    """Train with the recipe of docs/integrations.md for missing labels. The loss is a sum."""
    accelerator = _accelerator()
    model = network()
    trained, optimizer, prepared = accelerator.prepare(model, torch.optim.SGD(model.parameters(), RATE), loader)
    iterator = iter(prepared)
    while batches := list(islice(iterator, steps)):
        labels = accelerator.reduce(sum((targets >= 0).sum() for _, targets in batches))
        for inputs, targets in batches:
            accelerator.backward(loss(trained(inputs), targets) / labels * accelerator.num_processes)
        optimizer.step()
        optimizer.zero_grad()
    return parameters(model)


def _accelerator(**options: Any) -> Any:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()  # else a Trainer in bfloat16 before leaves its precision
    return Accelerator(cpu=True, **options)


class WithLoss(nn.Module):
    """A network for the Trainer of Hugging Face that computes its own loss, if it has one."""

    def __init__(self, loss: Loss | None) -> None:
        super().__init__()
        self.network, self.loss = network(), loss

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.network(inputs)
        if self.loss is None or labels is None:
            return {"logits": logits}
        return {"loss": self.loss(logits, labels), "logits": logits}


def huggingface(
    loader: DataLoader[Any], loss: Loss | None, compute_loss_func: Any = None, **options: Any
) -> tuple[Any, Tensor]:
    """Train with a loss in the model, or one in ``compute_loss_func``. Return the Trainer too."""
    from transformers import Trainer, TrainingArguments

    def joined(samples: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        inputs, targets = zip(*samples, strict=True)
        return {"inputs": torch.stack(inputs), "labels": torch.stack(targets)}

    class Given(Trainer):
        def get_train_dataloader(self) -> Any:
            given = {"batch_sampler": loader.batch_sampler, "collate_fn": self.data_collator}
            return self.accelerator.prepare(DataLoader(loader.dataset, **given))

    model = WithLoss(loss)
    settings = {"num_train_epochs": 1, "max_grad_norm": 0, "use_cpu": True, "report_to": [], "disable_tqdm": True}
    settings |= {"save_strategy": "no", "logging_strategy": "no", "remove_unused_columns": False, **options}
    steps = torch.optim.SGD(model.parameters(), RATE)
    same_rate = torch.optim.lr_scheduler.LambdaLR(steps, lambda _: 1.0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Given(
            model,
            TrainingArguments(folder, **settings),
            data_collator=joined,
            train_dataset=loader.dataset,
            compute_loss_func=compute_loss_func,
            optimizers=(steps, same_rate),
        )
        trainer.train()
    return trainer, parameters(model)
