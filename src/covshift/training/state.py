"""The state of a training run: one step, one epoch, and the checkpoint that it is resumed from."""

import io
import math
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from covshift.support.device import choose_device
from covshift.support.errors import CovshiftError
from covshift.support.files import replacing
from covshift.training import augmix
from covshift.training.feed import Feed, TrainingBatch
from covshift.training.recipe import Recipe

CHECKPOINT = "checkpoint.pt"
LOOK_EVERY = 5
"""Number of epochs between evaluations on the test images, which only inform: nothing is chosen by them."""


class Epoch(NamedTuple):
    """The result of an epoch; errors are shares from 0 to 1."""

    epoch: int
    loss: float
    train_error: float
    test_error: float | None
    seconds: float


def steps_per_epoch(recipe: Recipe, feed: Feed) -> int:
    """Return the number of steps of an epoch: an incomplete last batch is left out unless it is the only one."""
    return max(1, len(feed) // recipe.batch)


class TrainingRun:
    """Weights, momenta, the number of the next step, sums over the epoch so far, and history."""

    def __init__(self, recipe: Recipe, feed: Feed, folder: Path, seed: int, device: str) -> None:
        self.recipe, self.feed, self.seed, self.path = recipe, feed, seed, folder / CHECKPOINT
        self.device = choose_device(device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = recipe.network(feed.classes)
        self.amp = recipe.precision == "bfloat16"
        # Convolutions on a CPU are fastest with channels last, GroupNorm in bfloat16 with channels first.
        first = self.amp and recipe.norm == "group"
        self.layout = torch.contiguous_format if first else torch.channels_last
        self.network = network.to(self.device, memory_format=self.layout)  # type: ignore[call-overload]
        self.optimiser: Optimizer = recipe.optimiser(self.network)
        self.steps_per_epoch = steps_per_epoch(recipe, feed)
        self.total = self.steps_per_epoch * recipe.epochs
        self.step, self.loss, self.wrong, self.seen, self.seconds = 0, 0.0, 0, 0, 0.0
        self.history: list[Epoch] = []
        if self.path.exists():
            self._load()
        else:
            self.save()  # a folder that cannot be written to raises now, not after minutes

    def learn(self, batch: TrainingBatch) -> None:
        """Take one step of the optimiser."""
        images = batch.images.to(self.device, memory_format=self.layout)
        labels = batch.labels.to(self.device)
        rate = self.recipe.rate_at((self.step + 1) / self.total)
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group["share"]
        self.network.train()
        self.optimiser.zero_grad()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.amp):
            logits: Tensor = self.network(images)
        loss = self._loss(logits.float(), labels)
        loss.backward()
        self.optimiser.step()
        if not math.isfinite(loss.item()):
            raise self._diverged()
        self.step += 1
        self.loss += loss.item() * len(labels)
        classes = labels if labels.ndim == 1 else labels.argmax(1)
        self.wrong += int((logits[: len(labels)].argmax(1) != classes).sum())
        self.seen += len(labels)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        if len(logits) > len(labels):
            return augmix.loss(logits, labels)
        return F.cross_entropy(logits, labels, label_smoothing=self.recipe.smoothing)

    def finish_epoch(self) -> Epoch:
        """Sum the epoch up, and evaluate on the test images every few epochs."""
        number = self.step // self.steps_per_epoch
        look = number % LOOK_EVERY == 0 or self.step == self.total
        test_error = error(self.network, self.feed) if look else None
        row = Epoch(number, self.loss / self.seen, self.wrong / self.seen, test_error, self.seconds)
        self.history.append(row)
        self.loss, self.wrong, self.seen, self.seconds = 0.0, 0, 0, 0.0
        return row

    def save(self) -> None:
        """Write the checkpoint, unless the weights are no longer numbers."""
        state = self.network.state_dict()
        if not all(tensor.isfinite().all() for tensor in state.values()):
            raise self._diverged()
        sums = {"step": self.step, "loss": self.loss, "wrong": self.wrong, "seen": self.seen, "seconds": self.seconds}
        whole = {
            "recipe": asdict(self.recipe),
            "seed": self.seed,
            "images": len(self.feed),
            "classes": self.feed.classes,
            "sums": sums,
            "history": [tuple(row) for row in self.history],
            "network": state,
            "optimiser": self.optimiser.state_dict(),
        }
        buffer = io.BytesIO()  # torch hides the reason when it cannot write
        torch.save(whole, buffer)
        with replacing(self.path) as part:
            part.write_bytes(buffer.getbuffer())

    def _load(self) -> None:
        feed = {"images": len(self.feed), "classes": self.feed.classes}
        ours = asdict(self.recipe) | {"seed": self.seed} | feed
        try:
            whole = torch.load(self.path, map_location=self.device, weights_only=True)
            theirs = ours | whole["recipe"] | {key: whole[key] for key in ("seed", *feed) if key in whole}
            if changes := [f"{key} {theirs[key]!r}, not {ours[key]!r}" for key in ours if theirs[key] != ours[key]]:
                raise CovshiftError(
                    f"{self.path} is of another run: it has {', '.join(changes)}; train in another folder"
                )
            self.network.load_state_dict(whole["network"])
            self.optimiser.load_state_dict(whole["optimiser"])
            self.history = [Epoch(*row) for row in whole["history"]]
            vars(self).update(whole["sums"])
        except (RuntimeError, OSError, KeyError, TypeError, ValueError, EOFError, pickle.UnpicklingError) as error:
            reason = str(error) or "it ends too early"
            raise CovshiftError(f"{self.path} is not a checkpoint of covshift train ({reason}); delete it") from error

    def _diverged(self) -> CovshiftError:
        epoch = self.step // self.steps_per_epoch + 1
        return CovshiftError(
            f"the loss is no longer a number in epoch {epoch}, step {self.step}; the last good checkpoint is "
            f"{self.path}; train in another folder with a lower rate than {self.recipe.rate:g}"
        )


def error(network: nn.Module, feed: Feed, size: int = 250) -> float:
    """Return the share of the test images that the network gets wrong."""
    network.eval()
    device = next(network.parameters()).device
    wrong = seen = 0
    with torch.inference_mode():
        for images, labels in feed.test(size):
            wrong += int((network(images.to(device)).argmax(1) != labels.to(device)).sum())
            seen += len(labels)
    return wrong / seen
