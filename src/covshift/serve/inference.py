"""Routes of the Open Inference Protocol: health, metadata, inference."""

import asyncio
from importlib.metadata import version
from typing import Any

import torch
from fastapi import APIRouter, Depends, Request, Response

from covshift.serve.answers import REFUSED, described, json_answer, needs_inference, service_of, spend, stream_of
from covshift.serve.protocol import EXTENSIONS, INPUT, LENGTH_HEADER, OUTPUT, Question, format_answer, parse
from covshift.serve.refusals import Refusal
from covshift.serve.security import read_body

VERSION = "1"
"""The version of the model in the protocol; there is one."""

_LARGE = 1 << 16  # bytes: a body that is worth a thread of its own to be read in

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"], responses=REFUSED)

_TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype", "data"],
    "properties": {
        "name": {"const": INPUT},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}},
        "datatype": {"const": "FP32"},
        "data": {"type": "array"},
        "parameters": {"type": "object"},
    },
}
_PARAMETERS = {
    "type": "object",
    "properties": {
        "sequence_id": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "maxLength": 128}]},
        "sequence_start": {"type": "boolean"},
        "sequence_end": {"type": "boolean"},
        "binary_data_output": {"type": "boolean"},
    },
}
_QUESTION = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "parameters": _PARAMETERS,
        "inputs": {"type": "array", "items": _TENSOR, "minItems": 1, "maxItems": 1},
        "outputs": {"type": "array", "items": {"type": "object"}},
    },
}
_DESCRIBED: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": _QUESTION}}},
    "responses": {
        "200": {"description": "The logits.", "content": {"application/json": {"schema": {"type": "object"}}}}
    },
}
_MAY_INFER = [Depends(needs_inference)]


@router.get("")
async def server_metadata() -> dict[str, Any]:
    """Return the name and version of the server, and the extensions of the protocol that it has."""
    return {"name": "covshift", "version": version("covshift"), "extensions": list(EXTENSIONS)}


@router.get("/health/live")
async def is_live() -> Response:
    """Return 200: the server runs."""
    return json_answer({"live": True})


@router.get("/health/ready")
async def is_ready(request: Request) -> Response:
    """Return 200 if the model is warm, and 503 before that and while the server shuts down."""
    return _readiness(request)


@router.get("/models/{name}/ready", dependencies=_MAY_INFER)
@router.get("/models/{name}/versions/{number}/ready", dependencies=_MAY_INFER)
async def is_model_ready(request: Request, name: str, number: str = VERSION) -> Response:
    """Return 200 if the model is warm."""
    _check_model(request, name, number)
    return _readiness(request)


def _readiness(request: Request) -> Response:
    ready = service_of(request).ready
    return json_answer({"ready": ready}, 200 if ready else 503)


@router.get("/models/{name}", dependencies=_MAY_INFER)
@router.get("/models/{name}/versions/{number}", dependencies=_MAY_INFER)
async def model_metadata(request: Request, name: str, number: str = VERSION) -> dict[str, Any]:
    """Return the names, types and shapes of what the model takes and returns."""
    _check_model(request, name, number)
    service = service_of(request)
    sides = [-1 if side is None else side for side in service.sample]
    return {
        "name": name,
        "versions": [VERSION],
        "platform": "pytorch_covshift",
        "inputs": [{"name": INPUT, "datatype": "FP32", "shape": [-1, *sides]}],
        "outputs": [{"name": OUTPUT, "datatype": "FP32", "shape": [-1, service.classes]}],
    }


@router.post("/models/{name}/infer", dependencies=_MAY_INFER, openapi_extra=_DESCRIBED)
@router.post("/models/{name}/versions/{number}/infer", dependencies=_MAY_INFER, openapi_extra=_DESCRIBED)
async def infer(request: Request, name: str, number: str = VERSION) -> Response:
    """Return the logits for images of a camera, which its statistics follow."""
    _check_model(request, name, number)
    service = service_of(request)
    limits = service.settings.limits
    body = await read_body(request, limits)
    arguments = (body, request.headers.get(LENGTH_HEADER), service.sample, limits.images)
    small = len(body) < _LARGE
    question: Question = parse(*arguments) if small else await asyncio.to_thread(parse, *arguments)
    camera = question.camera or stream_of(request)
    spend(request, len(question.images))
    outcome = await service.answer(torch.from_numpy(question.images), camera, start=question.start, end=question.end)
    answer = format_answer(question, name, outcome.logits, described(outcome.brief, camera))
    return Response(answer.content, headers=answer.headers)


def _check_model(request: Request, name: str, number: str) -> None:
    settings = service_of(request).settings
    if name != settings.name or number != VERSION:
        raise Refusal(f"expected model {settings.name!r}, version {VERSION}; there is no other", status=404)
