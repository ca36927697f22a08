"""What the routes of the server have in common: their answers, errors, and what they need of a request."""

import math
from collections.abc import Mapping
from typing import Any, cast

from fastapi import Request, Response

from covshift.serve.backend import Backend
from covshift.serve.brief import Brief
from covshift.serve.protocol import camera_name, to_json
from covshift.serve.refusals import Refusal
from covshift.serve.security import Rates, check_token

STREAM_HEADER = "X-Stream-Id"
"""The header that names the camera of a request."""

_ERROR = {
    "description": "The request was refused.",
    "content": {
        "application/json": {
            "schema": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
        }
    },
}

REFUSED: dict[int | str, dict[str, Any]] = dict.fromkeys((400, 401, 403, 404, 405, 408, 413, 415, 429, 503), _ERROR)
"""How the description of the server shows refused requests."""


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer of JSON."""
    return Response(to_json(value), status, dict(headers or {}), "application/json")


def refuse(refusal: Refusal) -> Response:
    """Return the answer to a request that is refused."""
    headers = {} if refusal.retry is None else {"Retry-After": str(max(1, math.ceil(refusal.retry)))}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return json_answer({"error": str(refusal)}, refusal.status, headers)


def service_of(request: Request) -> Backend:
    """Return the service that answers a request."""
    return cast(Backend, request.app.state.service)


async def needs_inference(request: Request) -> None:
    """Refuse a request without the token for inference."""
    check_token(request, service_of(request).settings.token)


async def needs_control(request: Request) -> None:
    """Refuse a request without the token for control."""
    settings = service_of(request).settings
    check_token(request, settings.control or settings.token)


def spend(request: Request, images: int) -> None:
    """Count the images of a request against the rate of its client."""
    client = request.client.host if request.client else ""
    cast(Rates, request.app.state.rates).spend(client, images)


def stream_of(request: Request) -> str | None:
    """Return the name of the camera in the header of a request, if there is one."""
    value = request.headers.get(STREAM_HEADER)
    return None if value is None else camera_name(value)


def described(brief: Brief, camera: str | None) -> dict[str, object]:
    """Return what was done for a camera as the parameters of an answer, which are texts and numbers."""
    parameters: dict[str, object] = {} if camera is None else {"camera": camera}
    parameters |= {"adaptation": brief.done, "why": brief.why, "images_remembered": round(brief.remembered, 3)}
    if brief.shift is not None:
        parameters["shift"] = brief.shift
    predicted = brief.predicted
    if predicted is None:
        return parameters | {"predicted_error": "cannot tell"}
    return parameters | {
        "predicted_error": predicted.error,
        "predicted_error_low": predicted.low,
        "predicted_error_high": predicted.high,
    }
