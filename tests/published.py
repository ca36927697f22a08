"""What was published: the paper's table of models, and the layouts of their checkpoints, with random weights."""

import re
import struct
from pathlib import Path

import numpy as np
import torch

from covshift.models.imagenet import BLOCKS
from covshift.models.zoo import Entry
from covshift.models.zoo.assemble import AssembleResNet
from covshift.models.zoo.crc32c import masked_crc32c

# The paper's table "Overview of different models with parameter counts": parameters and BN parameters. The table gives
# one row no name, between resnext101-32x8d and shufflenet-v2-x0-5; its numbers are those of resnext50-32x4d.
PAPER = {
    "densenet121": (7978856, 83648),
    "densenet161": (28681000, 219936),
    "densenet169": (14149480, 158400),
    "densenet201": (20013928, 229056),
    "googlenet": (13004888, 15072),
    "inception_v3": (27161264, 36224),
    "mnasnet0_5": (2218512, 20624),
    "mnasnet0_75": (3170208, 29808),
    "mnasnet1_0": (4383312, 37920),
    "mnasnet1_3": (6282256, 48816),
    "mobilenet_v2": (3504872, 34112),
    "resnet101": (44549160, 105344),
    "resnet152": (60192808, 151424),
    "resnet18": (11689512, 9600),
    "resnet34": (21797672, 17024),
    "resnet50": (25557032, 53120),
    "resnext101_32x8d": (88791336, 202880),
    "resnext50_32x4d": (25028904, 68224),
    "shufflenet_v2_x0_5": (1366792, 7952),
    "shufflenet_v2_x1_0": (2278604, 16180),
    "shufflenet_v2_x1_5": (3503624, 23440),
    "shufflenet_v2_x2_0": (7393996, 33716),
    "vgg11_bn": (132868840, 5504),
    "vgg13_bn": (133053736, 5888),
    "vgg16_bn": (138365992, 8448),
    "vgg19_bn": (143678248, 11008),
    "wide_resnet101_2": (126886696, 137856),
    "wide_resnet50_2": (68883240, 68224),
}


def write(entry: Entry, module: torch.nn.Module, folder: Path) -> Path:
    """The published file of an entry, or for those without one what the authors' scripts would write."""
    state = {k: v for k, v in module.state_dict().items() if not k.endswith("num_batches_tracked")}
    name = entry.files[0].name if entry.files else "trained.pth.tar"
    path = folder / name
    if entry.name.startswith("simclrv2"):
        write_tensorflow(folder / name.removesuffix(".index"), as_simclr(state, entry.name))
        return path
    if entry.name.startswith("assemble"):
        return write_tensorflow(folder / "model.ckpt-1", as_assemble(state, module))
    if name.endswith(".npz"):
        np.savez(path, **as_tensorpack(state))
        return path
    torch.save(LAYOUTS.get(entry.name, as_family)(entry, state), path)
    return path


def parallel(state):
    return {f"module.{key}": value for key, value in state.items()}


def as_script(entry, state):
    """What the example of torch for ImageNet saves, and its descendants."""
    momentum = {"state": {0: {"momentum_buffer": torch.zeros(3)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
    best = torch.tensor(76.1)
    return {"epoch": 90, "arch": "resnet50", "state_dict": parallel(state), "best_acc1": best, "optimizer": momentum}


def as_family(entry, state):
    if entry.family == "densenet":
        return {re.sub(r"(denselayer\d+\.(?:norm|conv))(\d)\.", r"\1.\2.", k): v for k, v in state.items()}
    if entry.family == "resnet-fixup":
        stages = {f"stages.{i}.": f"layer{i + 1}." for i in range(4)}
        theirs = {re.sub(r"^stages\.\d\.", lambda m: stages[m[0]], k): v for k, v in state.items()}
        renamed = {{"bias1.bias": "bias1", "bias2.bias": "bias2"}.get(k, k): v for k, v in theirs.items()}
        return as_script(entry, renamed)
    return as_script(entry, state) if entry.family == "resnet-groupnorm" else state


LAYOUTS = {
    "augmix": lambda entry, state: as_script(entry, state) | {"model": "resnet50"},
    "ant": lambda entry, state: {"model_state_dict": state},
    "ant-sin": lambda entry, state: {"model_state_dict": state},
    **dict.fromkeys(("sin", "deepaugment", "deepaugment-augmix", "deepaugment-augmix-resnext101"), as_script),
}


def as_tensorpack(state):
    """Group normalisation in tensorpack: kernels H, W, in, out; the stem takes BGR."""
    names = {
        "conv1.weight": "conv0/W",
        "bn1.weight": "conv0/gn/gamma",
        "bn1.bias": "conv0/gn/beta",
        "fc.weight": "linear/W",
        "fc.bias": "linear/b",
    }
    found = {}
    for key, value in state.items():
        if key not in names:
            layer, block, rest = re.fullmatch(r"layer(\d)\.(\d+)\.(.*)", key).groups()
            part, _, kind = rest.rpartition(".")
            affine = {"weight": "gamma", "bias": "beta"}[kind]
            ends = {f"conv{i}": f"conv{i}/W" for i in (1, 2, 3)} | {f"bn{i}": f"conv{i}/gn/{affine}" for i in (1, 2, 3)}
            ends |= {"downsample.0": "convshortcut/W", "downsample.1": f"convshortcut/gn/{affine}"}
            names[key] = f"group{int(layer) - 1}/block{block}/{ends[part]}"
        array = value.numpy()
        array = array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T
        found[names[key] + ":0"] = array[:, :, ::-1] if key == "conv1.weight" else array
    return found


TF_NORM = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


def as_simclr(state, name):
    """SimCLRv2's variables, with the momenta, averages and projection head that its checkpoints hold as well."""
    found, number = {}, 0

    def layer(conv, norm):
        nonlocal number
        suffix = f"_{number}" if number else ""
        found[f"base_model/conv2d{suffix}/kernel"] = state[f"{conv}.weight"].numpy().transpose(2, 3, 1, 0)
        for ours, theirs in TF_NORM.items():
            found[f"base_model/batch_normalization{suffix}/{theirs}"] = state[f"{norm}.{ours}"].numpy()
        number += 1

    layer("conv1", "bn1")
    for group, blocks in enumerate(BLOCKS[int(name.removeprefix("simclrv2-resnet"))], 1):
        for block in range(blocks):
            at = f"layer{group}.{block}"
            if f"{at}.downsample.0.weight" in state:
                layer(f"{at}.downsample.0", f"{at}.downsample.1")
            for i in (1, 2, 3):
                layer(f"{at}.conv{i}", f"{at}.bn{i}")
    found["head_supervised/linear_layer/dense/kernel"] = state["fc.weight"].numpy().T
    found["head_supervised/linear_layer/dense/bias"] = state["fc.bias"].numpy()
    more = {"base_model/conv2d/kernel/Momentum", "base_model/batch_normalization_9/gamma/Momentum"}
    more |= {"ema_model/base_model/conv2d/kernel", "head_contrastive/nl_0/dense/kernel"}
    more |= {"head_contrastive/nl_0/batch_normalization/gamma", "head_supervised/linear_layer/dense/bias/Momentum"}
    return found | {key: np.ones(3, np.float32) for key in more} | {"global_step": np.int64(37535)}


def as_assemble(state, module: AssembleResNet):
    """The variables of assembled-cnn: each scope numbers its layers, and class 0 stands for none."""
    found = {}
    scopes = {"pool": "stage0/pool", "last": "stage4"}
    for i in (0, 1, 2):
        scopes |= {f"stages.{i}.{part}": f"stage{i + 1}/{part}{i + 1}" for part in ("big", "little", "merge")}
    # In their code: shortcut, 1 x 1, 3 x 3, 1 x 1; and in the pool: big, three little ones, the last.
    order = ("shortcut", "reduce", "spread", "expand")
    pool = ("big", "little1", "little2", "little3", "merge")

    def put(scope, kind, number, tensors):
        suffix = f"_{number}" if number else ""
        for what, value in tensors.items():
            found[f"resnet_model/{scope}/{kind}{suffix}/{what}"] = value

    def norm(at):
        return {theirs: state[f"{at}.{ours}"].numpy() for ours, theirs in TF_NORM.items()}

    def conv(at):
        return {"kernel": state[f"{at}.weight"].numpy().transpose(2, 3, 1, 0)}

    put("stage0", "conv2d", 0, conv("stem.conv"))
    put("stage0_1", "batch_normalization", 0, norm("stem.norm"))
    for own, scope in scopes.items():
        if own == "pool":
            layers, blocks = [f"pool.{part}" for part in pool], []
        else:
            blocks = [f"{own}.{k}" for k in range(20) if f"{own}.{k}.reduce.conv.weight" in state]
            layers = [f"{b}.{part}" for b in blocks for part in order if f"{b}.{part}.conv.weight" in state]
            layers += [f"{own}.{k}" for k in range(20) if f"{own}.{k}.conv.weight" in state]
        for number, at in enumerate(layers):
            put(scope, "conv2d", number, conv(f"{at}.conv"))
            put(scope, "batch_normalization", number, norm(f"{at}.norm"))
        for number, block in enumerate(blocks):
            inner = {f"sk_fc_1/{k}": v for k, v in conv(f"{block}.select.squeeze").items()}
            inner |= {f"batch_normalization/{k}": v for k, v in norm(f"{block}.select.norm").items()}
            inner |= {f"sk_fc_2/{k}": v for k, v in conv(f"{block}.select.excite").items()}
            put(scope, "sk_block", number, inner)
    kernel, bias = state["fc.weight"].numpy().T, state["fc.bias"].numpy()
    found["resnet_model/dense/kernel"] = np.concatenate([np.full((len(kernel), 1), 9, np.float32), kernel], 1)
    found["resnet_model/dense/bias"] = np.concatenate([np.full(1, 9, np.float32), bias])
    momentum = {"resnet_model/dense/kernel/Momentum": np.ones(3, np.float32)}
    return found | momentum | {"global_step": np.int64(1)}


def write_tensorflow(prefix: Path, tensors, per_block: int = 16) -> Path:
    """A checkpoint as TensorFlow writes it: a table of entries, and their bytes in a second file."""
    entries, data = {b"": _field(1, 1) + _field(3, _field(1, 1))}, bytearray()
    for name in sorted(tensors):
        array = np.asarray(tensors[name], order="C")
        content = array.tobytes()
        shape = b"".join(_field(2, _field(1, side)) for side in array.shape)
        kind = {"float32": 1, "int64": 9}[array.dtype.name]
        entry = _field(1, kind) + _field(2, shape) + _field(4, len(data)) + _field(5, len(content))
        entries[name.encode()] = entry + b"\x35" + struct.pack("<I", masked_crc32c(content))
        data += content
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(data)
    table, index, keys, handles = b"", {}, sorted(entries), b""
    for start in range(0, len(keys), per_block):
        block = _block({key: entries[key] for key in keys[start : start + per_block]})
        index[keys[start : start + per_block][-1]] = _varint(len(table)) + _varint(len(block))
        table += _closed(block)
    for block in (_block({}), _block(index)):
        handles += _varint(len(table)) + _varint(len(block))
        table += _closed(block)
    file = prefix.with_name(f"{prefix.name}.index")
    file.write_bytes(table + handles.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57))
    return file


def _closed(block: bytes) -> bytes:
    return block + b"\0" + struct.pack("<I", masked_crc32c(block + b"\0"))


def _block(entries) -> bytes:
    out, before = b"", b""
    for key, value in entries.items():
        shared = next(
            (i for i, (a, b) in enumerate(zip(before, key, strict=False)) if a != b), min(len(before), len(key))
        )
        out += _varint(shared) + _varint(len(key) - shared) + _varint(len(value)) + key[shared:] + value
        before = key
    return out + struct.pack("<II", 0, 1)


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])
