"""Course: one training under way. ``fit`` drives one or several in turn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from rectifier._base import check, console
from rectifier.data.loader import Loader
from rectifier.training.engine.average import Average
from rectifier.training.engine.devices import gather_all
from rectifier.training.engine.lanes import Lane, OnlyLane
from rectifier.training.engine.loop import training
from rectifier.training.engine.modes import set_training
from rectifier.training.engine.options import Options
from rectifier.training.engine.schedule import rate_at
from rectifier.training.engine.state import TERMS, State, Tally
from rectifier.training.engine.step_modes import EagerStep, fastest, make_optimizer

_REMEDY = (
    "Training ends; the last good checkpoint is kept."
    " A smaller learning rate (lr), clipped gradients (clip=1) or a warm-up (warmup=5) often help."
)


@dataclass(eq=False)
class Course:
    """One training, from its checkpoint or the start to the end. Network and objective are on ``fabric.device``.

    With ``judge_start`` the weights that it starts from count as epoch 0: they are validated, kept if no epoch is
    better, and ``patience`` counts from there. Their row in the history has no loss. ``select="last"`` keeps the last
    epoch all the same.
    """

    name: str  # for messages
    fabric: Fabric
    options: Options
    network: nn.Module
    objective: nn.Module
    loader: Loader
    labels: tuple[str, ...]
    ids: Callable[[Tensor], list[str]]  # gives the names of the samples at some positions
    checkpoint: dict[str, Any] | None = None
    recorder: Any = None  # has save_checkpoint and save_epoch; None in processes that do not write
    lane: Lane | OnlyLane = field(default_factory=OnlyLane)
    mixing: nn.Module | None = None
    validation: Callable[[], Tensor] | None = None  # gives a score; without it the last epoch is chosen
    before_epoch: Callable[[int], None] | None = None  # gets the number of each epoch, from 0
    judge_start: bool = False

    def __post_init__(self) -> None:
        self.wrapped, self.optimizer = self.fabric.setup(self.network, make_optimizer(self.network, self.options))
        self.average = Average(self.network, self.options.ema)  # of the weights in their final precision
        self.tally = Tally(len(self.labels), self.fabric.device)
        self.batches = len(self.loader)
        self.state = State.from_checkpoint(self.checkpoint)
        self.steps = -(-self.batches // self.options.accumulate)  # of an epoch
        self._loop = training(self)

    @property
    def is_over(self) -> bool:
        patience = self.options.patience
        return self.state.epoch >= self.options.epochs or (patience is not None and self.state.waited >= patience)

    @property
    def is_epoch_over(self) -> bool:
        """Whether all batches of the current epoch are done."""
        return self.state.batch >= self.batches

    @property
    def where(self) -> str:
        """The position in the training, in words."""
        state = self.state
        if not state.batch:
            return f"the end of epoch {state.epoch}"
        return f"epoch {state.epoch + 1}, batch {state.batch} of {self.batches}"

    def start(self) -> None:
        """Restore everything from the checkpoint, or save a first one."""
        saved, self.checkpoint = self.checkpoint, None
        with self.lane.turn():
            if saved is not None:
                self._restore(saved)
            total = self.options.epochs * self.steps
            steps = {part: total * alike for part, alike in self.lane.alike.items()}
            trained = (self.network, self.wrapped, self.optimizer, self.objective, self.tally)
            self.step = fastest(EagerStep(self.fabric, *trained, self.mixing, self.options.clip), self.options, steps)
            self.wrapped.train()
            set_training(self.network, self.options.freeze_norm)
            if saved is None and self.judge_start:
                self._judge_start()
        if saved is None:
            self.save()

    def advance(self) -> None:
        """Run the training loop to its next pause: a step, the start of a validation, or the end of an epoch."""
        with self.lane.turn():
            next(self._loop)

    def start_epoch(self) -> None:
        """Tell the objective and the sampler which epoch comes, and skip the batches that are done."""
        epoch = self.state.epoch
        set_progress: Any = getattr(self.objective, "set_progress", None)
        if set_progress is not None:  # not every objective changes during training
            set_progress(epoch / self.options.epochs)
        if self.before_epoch is not None and self.state.batch == 0:
            self.before_epoch(epoch)
        self.loader.set_epoch(epoch, skip=self.state.batch)

    def validate(self) -> Tensor | None:
        """Start the validation of the epoch if it is due."""
        number = self.state.epoch + 1
        due = number % self.options.validate_every == 0 or number == self.options.epochs
        return self._validated() if due else None

    def _validated(self) -> Tensor | None:
        with self.average.in_place():
            return None if self.validation is None else self.validation()

    def _judge_start(self) -> None:
        """Record the validation of the first weights, and keep them as those of epoch 0."""
        validated = self._validated()
        if validated is None:
            return
        row = {"epoch": 0, "step": 0, **dict.fromkeys(("lr", "loss", *TERMS)), "validation": float(validated)}
        self.state.epochs.append(row)
        self.state.judge(float(validated), self.network)
        if self.recorder is not None:
            self.recorder.save_epoch(row, [])

    def end_epoch(self, validated: Tensor | None) -> None:
        """Record the epoch, and keep its weights if it is the best. Waits for the score."""
        state, options, number = self.state, self.options, self.state.epoch + 1
        score = None if validated is None else float(validated)
        rate = rate_at(options, state.step - 1, self.steps)
        row = {"epoch": number, "step": state.step, "lr": rate, **self.tally.means(), "validation": score}
        labels = [{"epoch": number, **label} for label in self.tally.by_label(self.labels)]
        state.end_epoch(row, labels)
        with self.average.in_place():
            if score is not None and (number - 1) / options.epochs >= options.choose_from:
                state.judge(score, self.network, keep_last=options.select == "last")
            elif self.validation is None and number == options.epochs:
                state.keep(self.network)
        self.tally.reset()
        if self.recorder is not None:
            self.recorder.save_epoch(row, labels)

    def means(self) -> dict[str, float]:
        """Return the loss and its parts in the current epoch. Waits for the device."""
        with self.lane.turn():
            return self.tally.means()

    def complaint(self) -> str | None:
        """Say which loss is not finite, or after an epoch that the weights are not. Then nothing may be saved."""
        with self.lane.turn():
            bad, where = self.tally.first_bad(), f"epoch {self.state.epoch + 1}"
            if bad is not None:
                self.loader.set_epoch(self.state.epoch)
                ids = ", ".join(self.ids(self.loader.positions(bad))[:3])
                where = f"batch {bad + 1} of {where} (images {ids}, ...)"
                return f"{self.name}: The loss is not finite in {where}. {_REMEDY}"
            if not self.is_epoch_over:
                return None
            # NaN is the largest. A few kernels for all weights, and one wait for the device.
            largest = torch.nn.utils.get_total_norm(self.network.parameters(), norm_type=math.inf)
            return None if largest.isfinite() else f"{self.name}: The weights are not finite in {where}. {_REMEDY}"

    def save(self) -> None:
        with self.lane.turn():
            random = {"cpu": torch.get_rng_state()}
            if self.fabric.device.type == "cuda":
                random["cuda"] = torch.cuda.get_rng_state(self.fabric.device)
            everyone = gather_all(self.fabric, random)
            sampler_state = getattr(self.loader.sampler, "state", None)  # most samplers have only a seed and an epoch
            if self.recorder is not None:
                self.recorder.save_checkpoint(
                    {
                        **vars(self.state),
                        "network": self.network.state_dict(),
                        "average": self.average.weights,
                        "optimizer": self.optimizer.state_dict(),
                        "objective": self.objective.state_dict(),
                        "sampler": sampler_state() if callable(sampler_state) else {},
                        "precision": self.fabric.strategy.precision.state_dict(),
                        "tally": self.tally.state(),
                        "random": everyone,
                    }
                )

    def _restore(self, saved: dict[str, Any]) -> None:
        fabric = self.fabric
        self.network.load_state_dict(saved["network"])
        self.average.load(saved.get("average", {}))
        _load_optimizer(self.optimizer, saved["optimizer"])
        self.objective.load_state_dict(saved["objective"])
        if saved["sampler"]:
            on_device = {name: tensor.to(fabric.device) for name, tensor in saved["sampler"].items()}
            self.loader.sampler.load(on_device)  # type: ignore[union-attr]
        fabric.strategy.precision.load_state_dict(saved["precision"])
        self.tally.load(saved["tally"])
        if len(saved["random"]) != fabric.world_size:
            before = check.amount(len(saved["random"]), "process")
            console.say(f"The run started on {before}. Its random masks (dropout) will differ from an unbroken run's.")
            return
        random = saved["random"][fabric.global_rank]
        torch.set_rng_state(random["cpu"])
        if fabric.device.type == "cuda" and "cuda" in random:
            torch.cuda.set_rng_state(random["cuda"], fabric.device)


def _load_optimizer(optimizer: Any, state: dict[str, Any]) -> None:
    """Load the moments. The rate stays the same tensor or number, because the schedule sets its value."""
    own = [{key: group[key] for key in ("lr", "scale")} for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, values in zip(optimizer.param_groups, own, strict=True):
        group |= values
