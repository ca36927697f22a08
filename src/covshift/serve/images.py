"""The route for pictures, for curl and browsers: JPEG or PNG in, classes out."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import APIRouter, Depends, Query, Request, Response
from numpy.typing import NDArray
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from covshift.serve.answers import REFUSED, described, json_answer, needs_inference, service_of, spend, stream_of
from covshift.serve.backend import Backend
from covshift.serve.pictures import decode, thumbnail
from covshift.serve.protocol import camera_name
from covshift.serve.refusals import Refusal
from covshift.serve.security import read_body

router = APIRouter(prefix="/v1", tags=["Pictures"], responses=REFUSED)

_PICTURE = {"schema": {"type": "string", "format": "binary"}}
_DESCRIBED: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "image/jpeg": _PICTURE,
            "image/png": _PICTURE,
            "multipart/form-data": {"schema": {"type": "object", "additionalProperties": _PICTURE["schema"]}},
        },
    }
}


@router.post("/images", dependencies=[Depends(needs_inference)], openapi_extra=_DESCRIBED)
async def classify(
    request: Request,
    camera: Annotated[str | None, Query(max_length=128)] = None,
    top: Annotated[int, Query(ge=1, le=100)] = 5,
) -> Response:
    """Return the most probable classes of one picture, or of several in a form."""
    service = service_of(request)
    limits = service.settings.limits
    name = stream_of(request) if camera is None else camera_name(camera)
    body = await read_body(request, limits)
    files = await _files(request, body, limits.images)
    spend(request, len(files))
    pixels = await asyncio.to_thread(_pixels, service, files)
    images = await asyncio.to_thread(service.preprocess.tensor, pixels)
    small = await asyncio.to_thread(thumbnail, pixels[-1]) if service.settings.thumbnails else None
    outcome = await service.answer(images, name, thumbnail=small)
    chances = torch.from_numpy(outcome.logits).softmax(1)
    best = chances.topk(min(top, chances.shape[1]), dim=1)
    predictions = [
        [{"class": number, "probability": chance} for number, chance in zip(numbers, row, strict=True)]
        for numbers, row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return json_answer({"predictions": predictions, "parameters": described(outcome.brief, name)})


async def _files(request: Request, body: bytes, most: int) -> list[bytes]:
    """Return the pictures of a request: its body, or the files of a form."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        return [body]

    async def whole() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        form = await MultiPartParser(request.headers, whole(), max_files=most, max_fields=16).parse()
    except (MultiPartException, KeyError, ValueError, LookupError) as error:
        raise Refusal("expected a form with pictures as its files; it cannot be read") from error
    try:
        files = [await value.read() for _, value in form.multi_items() if isinstance(value, UploadFile)]
    finally:
        await form.close()
    if not files:
        raise Refusal("expected a form with at least one picture")
    return files


def _pixels(service: Backend, files: list[bytes]) -> NDArray[np.uint8]:
    """Return the pictures, resized and cropped for the model, NHWC."""
    most = service.settings.limits.pixels
    pixels = [service.preprocess.picture(decode(file, most)) for file in files]
    if len({picture.shape for picture in pixels}) > 1:
        raise Refusal("expected pictures of one size: this model does not resize them")
    return np.stack(pixels)
