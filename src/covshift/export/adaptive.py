"""Adaptation inside of an ONNX graph: Eq. 3 of the paper before every normalisation, with all state in one tensor.

The state is a vector: the number of images seen, then the mean and the variance of every layer. A run takes a state,
zeros by default, and returns the next one. Without a state each batch is adapted by itself, as `Batch(prior)` does;
with the state of the last run, the graph follows a stream, as `Stream(prior)` does.
"""

from typing import Any

import numpy as np

from covshift.export.extra import need
from covshift.support.errors import CovshiftError

Layout = list[tuple[str, int]]
"""The layers of a state in their order, each with its number of channels."""


def adapt_in_graph(graph: Any, prior: float) -> Layout:
    """Let every normalisation of a graph follow the images, and return the layout of the state.

    Args:
        graph: a graph of onnx_ir whose statistics are initialisers that are called after their layers.
        prior: N, the default of the input `prior`.
    """
    norms = [node for node in graph if node.op_type == "BatchNormalization"]
    layout = _layout(graph, norms)
    edit = _Editor(graph)
    total = 1 + 2 * sum(channels for _, channels in layout)
    state = edit.input("state", np.zeros(total, np.float32))
    n_prior = edit.input("prior", np.full(1, prior, np.float32))
    seen, *parts = edit.split(state, [1, *(channels for _, channels in layout for _ in ("mean", "var"))])
    batch = edit.op("Cast", [edit.op("Shape", [graph.inputs[0]], {"start": 0, "end": 1})], {"to": 1})
    now = edit.op("Add", [seen, batch])
    # Chan's formula, with images for counts: each image gives a layer equally many values.
    share = edit.op("Div", [batch, now])
    between = edit.op("Mul", [share, edit.op("Sub", [edit.constant(np.ones(1, np.float32)), share])])
    weight = edit.op("Div", [now, edit.op("Add", [n_prior, now])])
    edit.flush(before=next(iter(graph)))
    moments = [now]
    for node, old_mean, old_var in zip(norms, parts[::2], parts[1::2], strict=True):
        mean, var = edit.moments(node.inputs[0])
        delta = edit.op("Sub", [mean, old_mean])
        mean = edit.lerp(old_mean, mean, share)
        spread = edit.op("Mul", [between, edit.op("Mul", [delta, delta])])
        var = edit.op("Add", [edit.lerp(old_var, var, share), spread])
        moments += [mean, var]
        node.replace_input_with(3, edit.lerp(node.inputs[3], mean, weight))
        node.replace_input_with(4, edit.lerp(node.inputs[4], var, weight))
        edit.flush(before=node)
    following = edit.op("Concat", moments, {"axis": 0}, name="next_state")
    following.shape, following.dtype = state.shape, state.dtype
    graph.extend(edit.take())
    graph.outputs.append(following)
    return layout


def _layout(graph: Any, norms: list[Any]) -> Layout:
    layout: Layout = []
    for node in norms:
        mean = node.inputs[3]
        path = str(mean.name).removesuffix("running_mean").removesuffix(".")
        if mean.name not in graph.initializers or path in dict(layout):
            raise CovshiftError(
                f"expected every layer to be called once, got {path!r} several times; export it with `swappable=True`"
            )
        if str(mean.dtype) != "FLOAT":
            raise CovshiftError(f"expected statistics as float32, got {mean.dtype} in {path!r}; call model.float()")
        layout.append((path, int(mean.shape[0])))
    followed = {value.name for node in norms for value in node.inputs[3:5]}
    used = [name for name, value in graph.initializers.items() if value.uses()]
    others = [name for name in used if name.endswith(("running_mean", "running_var")) and name not in followed]
    if others:
        path = others[0].rpartition(".")[0]
        raise CovshiftError(
            f"expected layers that normalise as BatchNorm does, got {path!r}; export it with `swappable=True`"
        )
    return layout


class _Editor:
    """Makes new nodes, and puts them into a graph."""

    def __init__(self, graph: Any) -> None:
        self._ir = need("onnx_ir")
        self._graph = graph
        self._nodes: list[Any] = []
        self._made = 0
        self._constants: dict[bytes, Any] = {}

    def op(self, kind: str, inputs: list[Any], attributes: dict[str, Any] | None = None, name: str = "") -> Any:
        """Return the output of a new node."""
        node = self._ir.node(kind, inputs, attributes, num_outputs=1)
        self._nodes.append(node)
        value = node.outputs[0]
        value.name = name or f"adaptive_{self._made}"
        self._made += 1
        return value

    def split(self, value: Any, sizes: list[int]) -> list[Any]:
        """Return the parts of a vector."""
        node = self._ir.node("Split", [value, self.constant(np.array(sizes))], {"axis": 0}, num_outputs=len(sizes))
        self._nodes.append(node)
        for place, output in enumerate(node.outputs):
            output.name = f"state_{place}"
        return list(node.outputs)

    def lerp(self, start: Any, end: Any, weight: Any) -> Any:
        """Return (1 - weight) start + weight end."""
        return self.op("Add", [start, self.op("Mul", [weight, self.op("Sub", [end, start])])])

    def moments(self, x: Any) -> tuple[Any, Any]:
        """Return the mean and the biased variance of each channel."""
        axes = self.constant(np.array([axis for axis in range(len(x.shape)) if axis != 1]))
        mean = self.op("ReduceMean", [x, axes], {"keepdims": 1})
        centred = self.op("Sub", [x, mean])
        var = self.op("ReduceMean", [self.op("Mul", [centred, centred]), axes], {"keepdims": 0})
        return self.op("Squeeze", [mean, axes]), var

    def constant(self, array: Any) -> Any:
        """Return a constant, the same one for the same values."""
        key = array.dtype.str.encode() + array.tobytes()
        if key not in self._constants:
            self._constants[key] = self._initialiser(f"adaptive_constant_{len(self._constants)}", array)
        return self._constants[key]

    def input(self, name: str, default: Any) -> Any:
        """Return a new input of the graph that may be left out."""
        value = self._initialiser(name, default)
        self._graph.inputs.append(value)
        return value

    def flush(self, before: Any) -> None:
        """Put the new nodes into the graph, before one of its own."""
        self._graph.insert_before(before, self.take())

    def take(self) -> list[Any]:
        """Return the new nodes, which are then no longer new."""
        nodes, self._nodes = self._nodes, []
        return nodes

    def _initialiser(self, name: str, array: Any) -> Any:
        tensor = self._ir.tensor(array, name=name)
        value = self._ir.Value(
            name=name, shape=self._ir.Shape(array.shape), type=self._ir.TensorType(tensor.dtype), const_value=tensor
        )
        self._graph.register_initializer(value)
        return value
