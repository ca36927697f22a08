"""A user's own policy on a model: what it is asked, what it carries, and what it may not be."""

import ast
import inspect
import math
import re
from collections import namedtuple
from dataclasses import replace

import numpy as np
import pytest
import torch
from networks import assert_same, images, norm_layers, snapshot, tiny
from torch import nn

import covshift
from covshift import Batch, CovshiftError, Memory, Policy, Statistics, Stream
from covshift.core import adapter as adapter_module
from covshift.core.calling import call_model, device_of, logits_of
from covshift.core.identity import digest, fingerprint


class Fixed(Policy):
    """Go a fixed part of the way, in every layer."""

    def __init__(self, weight, size=None):
        self.weight, self.size = weight, size

    def weigh(self, place, seen, rows):
        return self.weight


class Judging(Stream):
    """A stream that also remembers how often the model has answered each class."""

    def commit(self, memory, seen, output):
        after = super().commit(memory, seen, output)
        if output is None:
            return after
        chosen = torch.bincount(logits_of(output).argmax(1), minlength=4)
        return replace(after, notes={"answers": memory.notes.get("answers", 0) + chosen})


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0, torch.tensor(0.3)])
@pytest.mark.parametrize("size", [None, 4])
def test_a_policy_of_ones_own_decides_how_far_to_go(weight, size):
    model, x = tiny(), images(8)
    before, source, inputs = snapshot(model), Statistics.of(model), {}
    with torch.no_grad(), covshift.adapt(model, Fixed(weight, size)):
        for path, layer in norm_layers(model).items():
            layer.register_forward_pre_hook(lambda m, args, path=path: inputs.update({path: args[0].clone()}))
        got = model(x)
        held = Statistics.of(model)
    if size is None:
        seen = inputs["norm"]
        want = (1 - weight) * source["norm"].mean + weight * seen.mean((0, 2, 3))
        torch.testing.assert_close(held["norm"].mean, want)
    else:
        with torch.no_grad(), covshift.adapt(model, Fixed(weight)):
            torch.testing.assert_close(got, torch.cat([model(x[:4]), model(x[4:])]), rtol=1e-9, atol=1e-9)
    for layer in norm_layers(model).values():
        layer._forward_pre_hooks.clear()
    assert_same(before, model)


def test_a_policy_sees_the_answers_at_the_end_of_a_pass():
    model, x = tiny(), images(8)
    with torch.no_grad():
        with covshift.adapt(model, Stream(prior=4)):
            answers = torch.cat([model(x[:5]), model(x[5:])]).argmax(1)
        with covshift.adapt(model, Judging(prior=4)) as adapter:
            model(x[:5])
            model(x[5:])
            model.stem(x)  # a part alone has no answers
            assert torch.equal(adapter._memory.notes["answers"], torch.bincount(answers, minlength=4))
            assert adapter.state.images == 16


def test_a_state_holds_what_a_policy_keeps_for_itself(tmp_path):
    model, x = tiny(), images(12)
    with torch.no_grad(), covshift.adapt(model, Judging(prior=4)) as adapter:
        model(x[:5])
        first = adapter.state
        kept = first.notes["answers"].clone()
        first.save(tmp_path / "state")
        want = model(x[5:])
        last = adapter.state
        assert last.notes["answers"].sum() == 12
        for state in (first, Statistics.load(tmp_path / "state")):
            adapter.state = state
            assert torch.equal(model(x[5:]), want)
            assert adapter.state == last
        assert torch.equal(first.notes["answers"], kept)
        assert first == Statistics.load(tmp_path / "state") != Statistics(dict(first), first.fingerprint)
        adapter.reset()
        assert not adapter.state.notes


class ByRows(Stream):
    """A stream whose weight is that of the rows, which it forgets are not always there."""

    def weigh(self, place, seen, rows):
        return float(rows.images > 0) / 2


def test_a_policy_that_needs_rows_does_not_hide_what_went_wrong():
    model, x = tiny(), images(4)
    before = snapshot(model)
    with torch.no_grad(), covshift.adapt(model, ByRows()) as adapter:
        model(x)
        with pytest.raises(CovshiftError, match="NaN") as raised:
            model(x * math.nan)
        assert isinstance(raised.value.__cause__, AttributeError)
        assert adapter.state.images == 4
        assert model(x).isfinite().all()
    assert_same(before, model)


def test_adapter_knows_no_policy_by_name():
    text = inspect.getsource(adapter_module)
    tree = ast.parse(text)
    checks = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"]
    assert not [ast.unparse(check) for check in checks if "policy" in ast.unparse(check.args[0])]
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert not {"Batch", "Stream"} & set(imported)
    assert '== "auto"' not in text


def test_policies_that_cannot_be():
    class Both(Stream):
        size = 4

    with pytest.raises(CovshiftError, match="which does both"):
        covshift.adapt(tiny(), Both())
    with (
        pytest.raises(CovshiftError, match=r"Policy to define weigh\(\)"),
        covshift.adapt(tiny(), Policy()) as on,
    ):
        on._model(images(2))
    with (
        pytest.raises(CovshiftError, match=r"Fixed starts afresh .* only a Stream"),
        covshift.adapt(tiny(), Fixed(1)) as on,
    ):
        on.state = on.state
    for size, shape, wanted in ((None, [3], [6]), (None, [1, 6], [6]), (4, [4, 1], [2, 6]), (4, [1, 2, 6], [2, 6])):
        words = f"broadcasts to the moments of layer 'stem.1', which are {wanted}, got a tensor of {shape}"
        with (
            pytest.raises(CovshiftError, match=re.escape(words)),
            covshift.adapt(tiny(), Fixed(torch.full(shape, 0.5), size)) as on,
        ):
            on._model(images(8))
    with (
        pytest.raises(CovshiftError, match=r"weigh\(\) of Fixed to return a number from 0 to 1, got 1.5"),
        covshift.adapt(tiny(), Fixed(1.5)) as on,
    ):
        on._model(images(8))
    assert Batch() == Batch(prior=16, size=None, sync=True)
    assert Memory().seen == {}


class Opened:
    """As `open_model` returns it: the module, and what has to be known of it."""

    def __init__(self, module):
        self.module = module


def test_what_open_model_returns_can_be_given_everywhere():
    model, x = tiny(), images(8)
    opened = Opened(model)
    with torch.no_grad():
        with covshift.adapt(model, Batch()):
            want = model(x)
        with covshift.adapt(opened, Batch()):
            assert torch.equal(model(x), want)
        covshift.adapt(opened, Batch())
        covshift.release(opened)
        assert torch.equal(call_model(opened, (x, 0)), model(x))
    target = covshift.estimate(opened, x)
    assert target == covshift.estimate(model, x)
    assert Statistics.of(opened) == Statistics.of(model)
    assert (fingerprint(opened), digest(opened)) == (fingerprint(model), digest(model))
    assert device_of(opened).type == "cpu"
    target.apply(opened)
    assert torch.equal(model.norm.running_var, target["norm"].var)
    for wrong in (Opened("text"), 3, None):
        with pytest.raises(CovshiftError, match=r"expected a torch.nn.Module, got"):
            covshift.estimate(wrong, x)


def test_logits_are_found_in_what_models_return():
    logits, Output = torch.rand(2, 4), namedtuple("Output", ["loss", "logits"])
    for output in (logits, {"logits": logits}, Output(None, logits), type("Mine", (), {"logits": logits})()):
        assert logits_of(output) is logits
    for output in (None, {"scores": logits}, [logits], Output(logits, None)):
        with pytest.raises(CovshiftError, match="an object or a dict with logits, got"):
            logits_of(output)


def test_a_model_that_returns_an_object_is_adapted_like_another():
    class Face(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = tiny()

        def forward(self, x):
            return {"loss": None, "logits": self.body(x)}

    model, x = Face().eval(), images(6)
    with torch.no_grad(), covshift.adapt(model, Judging(prior=4)) as adapter:
        got = logits_of(model(x))
        assert adapter._memory.notes["answers"].sum() == 6
    with torch.no_grad(), covshift.adapt(model.body, Stream(prior=4)):
        assert torch.equal(got, model.body(x))


@pytest.mark.parametrize(
    ("weight", "words"), [(5, "got 5"), (-0.1, "got -0.1"), (math.nan, "got nan"), (None, "got None")]
)
def test_a_weight_that_cannot_be_names_the_policy(weight, words):
    class Odd(covshift.Policy):
        def weigh(self, place, seen, rows):
            return weight

    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    with covshift.adapt(net, Odd()), pytest.raises(CovshiftError, match=f"weigh.. of Odd .* from 0 to 1, got {weight}"):
        net(torch.rand(2, 3, 8, 8))


def test_uint8_images_are_estimated_through_the_models_own_preprocessing():
    model = covshift.open_model("builtin:resnet20")
    pixels = np.random.default_rng(0).integers(0, 256, (70, 32, 32, 3), np.uint8)
    seen = covshift.estimate(model, model.preprocess(pixels))
    assert covshift.estimate(model, pixels) == seen
    assert covshift.estimate(model, torch.from_numpy(pixels).permute(0, 3, 1, 2)) == seen
    with pytest.raises(CovshiftError, match="give what open_model returns"):
        covshift.estimate(model.module, pixels)
