"""Replicas and their front as an application of Ray Serve."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_type_hints

from fastapi import FastAPI
from pydantic import TypeAdapter, ValidationError
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import DeploymentUnavailableError

from covshift.serve.app import make_app
from covshift.serve.replicas.front import Front
from covshift.serve.replicas.replica import Recipe, Replica
from covshift.serve.watch import watch
from covshift.serve.webhook import Webhook
from covshift.support.errors import CovshiftError, unknown

APP = "covshift"
"""The name of the application."""

_LOST = (RayActorError, DeploymentUnavailableError)
_MANY = 10_000  # requests at once; what is too many, the service itself refuses


class DeployedReplica(Replica):
    """A replica as Ray Serve starts and stops it."""

    async def __init__(self, recipe: Recipe) -> None:  # type: ignore[misc]
        await self.start(recipe)

    async def __del__(self) -> None:
        """Save all cameras."""
        await self.stop()


def application(arguments: Mapping[str, Any]) -> serve.Application:
    """Return the application for a configuration file of Ray Serve; its arguments are the fields of `Recipe`."""
    _check_names(Recipe, arguments)
    try:
        recipe = TypeAdapter(Recipe).validate_python(dict(arguments))
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise CovshiftError(f"the arguments of the application are not valid: {problems}") from error
    names = ("COVSHIFT_TOKEN", "COVSHIFT_CONTROL_TOKEN", "COVSHIFT_WEBHOOK_TOKEN")
    token, control, webhook_token = (os.environ.get(name) or None for name in names)
    given = recipe.settings
    settings = replace(given, token=given.token or token, control=given.control or control)
    return deployed(replace(recipe, settings=settings, webhook_token=recipe.webhook_token or webhook_token))


def _check_names(kind: Any, arguments: Mapping[str, Any]) -> None:
    """Raise a `CovshiftError` if a dataclass, or one inside of it, has no field of a name."""
    kinds = get_type_hints(kind)
    for name, value in arguments.items():
        if name not in kinds:
            raise unknown("argument", name, kinds)
        if isinstance(value, Mapping):
            _check_names(kinds[name], value)


def deployed(recipe: Recipe, cpus: float = 1.0) -> serve.Application:
    """Return the application that `ray.serve.run` runs: the front, and the replicas behind it.

    Args:
        recipe: what the server is made of.
        cpus: the number of CPUs that Ray reserves for each replica.
    """
    names = [f"Replica-{number}" for number in range(recipe.replicas)]

    def make_front() -> FastAPI:
        return _make_front(recipe, names)

    often = {"health_check_period_s": 2.0, "health_check_timeout_s": 20.0, "max_ongoing_requests": _MANY}
    replicas = [
        serve.deployment(DeployedReplica, name=name, ray_actor_options={"num_cpus": cpus}, **often).bind(recipe)
        for name in names
    ]
    front = serve.deployment(serve.ingress(make_front)(), name="Front", ray_actor_options={"num_cpus": 0}, **often)
    return front.bind(*replicas)


def _make_front(recipe: Recipe, names: list[str]) -> FastAPI:
    """Return the application of the server, the same as without replicas; runs in the process of the front."""
    handles = {name: serve.get_deployment_handle(name) for name in names}

    async def ask(replica: str, method: str, *arguments: Any) -> Any:
        return await getattr(handles[replica], method).remote(*arguments)

    front = Front(recipe.settings, names, ask, _LOST, predicts=recipe.predictor is not None)
    webhook = None if recipe.webhook is None else Webhook(recipe.webhook, recipe.webhook_token)
    return make_app(front, [watch(front, recipe.rules, webhook=webhook, labelled=recipe.labelled)])


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


def run(recipe: Recipe, host: str, port: int, *, cpus: float = 1.0, announce: Callable[[str], object]) -> None:
    """Serve on the Ray cluster that this process is connected to, until Ctrl-C or SIGTERM; cameras are saved then.

    Args:
        recipe: what the server is made of.
        host: the address to listen on, on each machine of the cluster.
        port: the port to listen on; 0 for any that is free.
        cpus: the number of CPUs that Ray reserves for each replica.
        announce: called with the address of the server when it answers.
    """
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        port = port or _free_port(host)
        serve.start(http_options={"host": host, "port": port})
        serve.run(deployed(recipe, cpus), name=APP, route_prefix="/")
        announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        stop.wait()
    finally:
        serve.delete(APP)  # which has all replicas save their cameras; others may have applications of their own
        for number, handler in before.items():
            signal.signal(number, handler)
