"""Routes for the control of cameras: list, reset, freeze, save, load, forget."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response

from covshift.serve.answers import REFUSED, described, json_answer, needs_control, service_of
from covshift.serve.backend import Control
from covshift.serve.brief import Brief
from covshift.serve.protocol import camera_name
from covshift.serve.refusals import Refusal
from covshift.serve.security import read_body

router = APIRouter(prefix="/v1/cameras", tags=["Cameras"], responses=REFUSED, dependencies=[Depends(needs_control)])

Name = Annotated[str, Path(max_length=128)]

_STATE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


def _cameras(request: Request) -> Control:
    return service_of(request).cameras


def _name(text: str) -> str:
    name = camera_name(text)
    if name is None:
        raise Refusal("expected the name of a camera")
    return name


def _described(name: str, brief: Brief | None) -> dict[str, object]:
    return {"camera": name, "adaptation": "stored"} if brief is None else described(brief, name)


@router.get("")
async def list_cameras(request: Request) -> Response:
    """Return all cameras, and what is done for those in memory."""
    listed = await asyncio.to_thread(_cameras(request).listed)
    return json_answer({"cameras": [_described(name, brief) for name, brief in listed.items()]})


@router.post("/{name}/reset")
async def reset(request: Request, name: Name) -> Response:
    """Have a camera forget what it has seen."""
    await asyncio.to_thread(_cameras(request).reset, _name(name))
    return json_answer({"camera": name})


@router.post("/{name}/freeze")
async def freeze(request: Request, name: Name) -> Response:
    """Keep what a camera remembers as it is."""
    await asyncio.to_thread(_cameras(request).freeze, _name(name))
    return json_answer({"camera": name, "frozen": True})


@router.post("/{name}/follow")
async def follow(request: Request, name: Name) -> Response:
    """Let a camera that is frozen follow its images again."""
    await asyncio.to_thread(_cameras(request).freeze, _name(name), frozen=False)
    return json_answer({"camera": name, "frozen": False})


@router.get("/{name}/state", response_class=Response)
async def save(request: Request, name: Name) -> Response:
    """Return the state of a camera as a safetensors file, which `Statistics.load` reads."""
    content = await asyncio.to_thread(_cameras(request).save, _name(name))
    return Response(content, media_type="application/octet-stream")


@router.put("/{name}/state", openapi_extra=_STATE)
async def load(request: Request, name: Name) -> Response:
    """Let a camera resume from a state; the camera is made if it is new."""
    content = await read_body(request, service_of(request).settings.limits)
    await asyncio.to_thread(_cameras(request).load, _name(name), content)
    return json_answer({"camera": name})


@router.delete("/{name}")
async def forget(request: Request, name: Name) -> Response:
    """Remove a camera, from memory and from the store."""
    await asyncio.to_thread(_cameras(request).forget, _name(name))
    return json_answer({"camera": name})
