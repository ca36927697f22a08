"""Adapt a model while Lightning predicts: a callback of a few lines, which leaves the model as it found it.

With Lightning installed, `Trainer(callbacks=[Adapt(covshift.Batch(prior=16))]).predict(model, loader)` is all; without
it, this script goes through the same calls by itself.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import covshift

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ModuleNotFoundError:
    Callback, LightningModule, Trainer = object, nn.Module, None


class Adapt(Callback):  # type: ignore[misc]
    """A callback that lets the statistics of a model follow what it predicts on."""

    def __init__(self, policy: covshift.Policy) -> None:
        self.policy = policy
        self.adapter: covshift.Adapter | None = None

    def on_predict_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Put the policy on the model, which is in eval mode by now."""
        self.adapter = covshift.adapt(pl_module, self.policy)

    def on_predict_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Take it off again."""
        if self.adapter is not None:
            self.adapter.remove()

    def on_exception(self, trainer: Any, pl_module: nn.Module, exception: BaseException) -> None:
        """Take it off if predicting fails, too."""
        self.on_predict_end(trainer, pl_module)


class Classifier(LightningModule):  # type: ignore[misc]
    """A built-in network as a LightningModule."""

    def __init__(self) -> None:
        super().__init__()
        self.network = covshift.open_model("builtin:resnet20").module

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.network(images)
        return logits


def predict(model: nn.Module, batches: DataLoader[Tensor], callback: Adapt | None) -> Tensor:
    """Return the logits, by Lightning's trainer where there is one."""
    callbacks = [] if callback is None else [callback]
    if Trainer is not None:
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
        return torch.cat(Trainer(callbacks=callbacks, enable_checkpointing=False, **quiet).predict(model, batches))
    model.eval()
    for each in callbacks:
        each.on_predict_start(None, model)
    with torch.inference_mode():
        logits = torch.cat([model(batch) for batch in batches])
    for each in callbacks:
        each.on_predict_end(None, model)
    return logits


def main() -> None:
    """Predict on shifted images, as the model is and adapted."""
    torch.manual_seed(0)
    model = Classifier()
    batches: DataLoader[Tensor] = DataLoader(0.3 * torch.randn(64, 3, 32, 32) + 1, batch_size=16)  # type: ignore[arg-type]
    plain = predict(model, batches, None).softmax(1).amax(1).mean()
    adapted = predict(model, batches, Adapt(covshift.Batch(prior=16))).softmax(1).amax(1).mean()
    print(f"mean confidence: {plain:.2f} as it is, {adapted:.2f} adapted")


if __name__ == "__main__":
    main()
