"""The Open Inference Protocol, version 2, with the extensions for binary tensors and sequences: parse and format."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.serve.refusals import Refusal, TooLarge

LENGTH_HEADER = "Inference-Header-Content-Length"
"""The header with the length of the JSON in a body that has binary tensors behind it."""

EXTENSIONS = ("binary_tensor_data", "sequence")

INPUT, OUTPUT = "images", "logits"
"""The names of the model's tensors."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}")
_FLOAT = np.dtype("<f4")

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Question:
    """What a client asks.

    Attributes:
        images: the model's input, [images, ...].
        id: the id of the request, which the answer repeats.
        camera: the name of its camera; None for a request that belongs to none.
        start: whether the camera starts anew with these images.
        end: whether the camera is forgotten after them.
        binary: whether the logits are wanted as binary data.
    """

    images: Array
    id: str | None = None
    camera: str | None = None
    start: bool = False
    end: bool = False
    binary: bool = False


class Body(NamedTuple):
    """The body of an answer and its headers."""

    content: bytes
    headers: dict[str, str]


def camera_name(value: object) -> str | None:
    """Return the name of a camera, given as a number or a text; None for 0 and "", which mean no camera.

    >>> camera_name(7), camera_name("gate-2"), camera_name(0)
    ('7', 'gate-2', None)
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise Refusal(f"expected sequence_id as a number or a text, got {type(value).__name__}")
    if value in (0, "", "0"):
        return None
    if isinstance(value, int) and not 0 < value < 1 << 64:
        raise Refusal("expected sequence_id as a number from 0 to 2^64 - 1")
    name = str(value)
    if not _NAME.fullmatch(name):
        raise Refusal("expected a camera's name of up to 128 letters, digits and _.:@-, with no sign at its beginning")
    return name


def parse(body: bytes, header: str | None, sample: Sequence[int | None], most: int) -> Question:
    """Return the question in the body of a request, or raise a `Refusal`.

    Args:
        body: the body.
        header: the value of `LENGTH_HEADER`, if the request has one.
        sample: the shape of one image; None where any size will do.
        most: the number of images that are allowed.
    """
    length = _length(header, len(body))
    request = _object(_json(body[:length]), "the request")
    parameters = _object(request.get("parameters") or {}, "parameters")
    images = _input(request, memoryview(body)[length:], sample, most)
    given = request.get("id")
    if given is not None and not isinstance(given, str):
        raise Refusal("expected id as a text")
    camera = parameters.get("sequence_id")
    return Question(
        images,
        given,
        None if camera is None else camera_name(camera),
        _flag(parameters, "sequence_start"),
        _flag(parameters, "sequence_end"),
        _binary(request, parameters),
    )


def _length(header: str | None, size: int) -> int:
    if header is None:
        return size
    if not (header.isascii() and header.isdecimal() and len(header) < 12 and int(header) <= size):
        raise Refusal(f"expected {LENGTH_HEADER} as a number of bytes up to the {size} of the body")
    return int(header)


def _json(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or nested without end
        raise Refusal("expected a body of JSON; it cannot be read as such") from error


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refusal(f"expected {what} as a JSON object, got {type(value).__name__}")
    return value


def _flag(parameters: Mapping[str, Any], name: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise Refusal(f"expected {name} as true or false")
    return value


def _input(request: Mapping[str, Any], rest: memoryview, sample: Sequence[int | None], most: int) -> Array:
    """Return the tensor of the only input, from the JSON or from the binary data behind it."""
    inputs = request.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1:
        raise Refusal("expected inputs as a list with one tensor")
    tensor = _object(inputs[0], "an input")
    if tensor.get("name") != INPUT:
        raise Refusal(f"expected an input called {INPUT!r}")
    if tensor.get("datatype") != "FP32":
        raise Refusal("expected an input of datatype FP32")
    shape = _shape(tensor.get("shape"), sample, most)
    size = _object(tensor.get("parameters") or {}, "parameters").get("binary_data_size")
    if size is None:
        if rest:
            raise Refusal("expected an input with binary_data_size for the binary data behind the JSON")
        values = _listed(tensor.get("data"), shape)
    elif isinstance(size, bool) or not isinstance(size, int) or not size == len(rest) == 4 * math.prod(shape):
        raise Refusal(f"expected {4 * math.prod(shape)} bytes of binary data for the shape {list(shape)}")
    else:
        values = np.frombuffer(rest, _FLOAT).reshape(shape)
        # Tensors want memory that may be written to and is aligned.
        values = np.require(values, np.float32, ["C", "A", "W"])
    if not np.isfinite(values).all():
        raise Refusal("expected finite numbers, got NaN or infinity")
    return values


def _shape(shape: object, sample: Sequence[int | None], most: int) -> tuple[int, ...]:
    if (
        not isinstance(shape, list)
        or len(shape) != 1 + len(sample)
        or not all(type(side) is int and 0 < side < 1 << 16 for side in shape)
        or any(want is not None and side != want for side, want in zip(shape[1:], sample, strict=True))
    ):
        sides = ", ".join("any" if side is None else str(side) for side in sample)
        is_short = isinstance(shape, list) and len(shape) < 8 and all(type(side) is int for side in shape)
        got = f", got {shape}" if is_short else ""
        raise Refusal(f"expected images of the shape [images, {sides}]{got}")
    if shape[0] > most:
        raise TooLarge(f"expected at most {most} images in a request, got {shape[0]}")
    return tuple(shape)


def _listed(data: object, shape: tuple[int, ...]) -> Array:
    """Return the numbers of a list, flat or nested."""
    try:
        values = np.asarray(data) if isinstance(data, list) else np.empty(0)
    except (ValueError, OverflowError, RecursionError) as error:
        raise Refusal("expected data as a list of numbers, flat or nested by the shape") from error
    if values.dtype.kind not in "iuf" or values.shape not in (shape, (math.prod(shape),)):
        raise Refusal(f"expected data as {math.prod(shape)} numbers, flat or nested by the shape {list(shape)}")
    with np.errstate(over="ignore"):
        return values.astype(np.float32).reshape(shape)


def _binary(request: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    """Return whether the logits are wanted as binary data."""
    binary = _flag(parameters, "binary_data_output")
    outputs = request.get("outputs")
    if outputs is None:
        return binary
    if not isinstance(outputs, list):
        raise Refusal("expected outputs as a list of tensors")
    for output in outputs:
        tensor = _object(output, "an output")
        if tensor.get("name") != OUTPUT:
            raise Refusal(f"expected an output called {OUTPUT!r}")
        wanted = _object(tensor.get("parameters") or {}, "parameters")
        if "classification" in wanted:
            raise Refusal("expected no classification: the answer has logits only")
        binary = _flag({"binary_data": binary} | wanted, "binary_data")
    return binary


def format_answer(question: Question, model: str, logits: Array, parameters: Mapping[str, object]) -> Body:
    """Return the body of the answer to a question."""
    output: dict[str, object] = {"name": OUTPUT, "datatype": "FP32", "shape": list(logits.shape)}
    answer: dict[str, object] = {"model_name": model, "model_version": "1"}
    answer |= {} if question.id is None else {"id": question.id}
    answer |= {"parameters": dict(parameters), "outputs": [output]}
    if not question.binary:
        output["data"] = logits.ravel().tolist()
        return Body(to_json(answer), {"Content-Type": "application/json"})
    rest = logits.astype(_FLOAT).tobytes()
    output["parameters"] = {"binary_data_size": len(rest)}
    head = to_json(answer)
    return Body(head + rest, {"Content-Type": "application/octet-stream", LENGTH_HEADER: str(len(head))})


def to_json(value: object) -> bytes:
    """Return a value as JSON in ASCII, which can hold any text that JSON can be read from."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")
