"""`covshift serve`: an inference server whose model follows each camera."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from covshift.cli import options
from covshift.support.errors import CovshiftError

_access = partial(typer.Option, rich_help_panel="Access")
_limit = partial(typer.Option, min=1, rich_help_panel="Limits")
_watch = partial(typer.Option, rich_help_panel="Watching")
_SCALE = "Scaling out"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def command(
    model: Annotated[str | None, typer.Option(help="Model, e.g. torchvision:resnet50.")] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve a built-in model to three cameras that run into fog and out again.")
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|DATA",
            help="Source that Source.save wrote, or clean images to measure one on, e.g. folder:clean.",
            show_default="what the model holds",
        ),
    ] = None,
    predictor: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Predictor of errors: the file that Predictor.save or covshift shift --predictor wrote.",
            show_default="errors are not predicted",
        ),
    ] = None,
    policy: Annotated[str, typer.Option(metavar="live|stream|batch|none", help="How cameras are followed.")] = "live",
    state: Annotated[
        str, typer.Option(metavar="FILE|URL", help="Where cameras are kept: a file, redis://HOST:PORT, or memory.")
    ] = "cameras.sqlite",
    name: Annotated[str, typer.Option(help="Name of the model in the protocol.")] = "model",
    batch: Annotated[int, typer.Option(min=1, help="Number of images in a forward pass, at most.")] = 32,
    delay: Annotated[float, typer.Option(min=0, help="Milliseconds that a request waits for others.")] = 5,
    host: Annotated[str, _access(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, _access(min=0, max=65535, help="Port to listen on.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        _access(
            metavar="NAMES",
            help="Names by which the server may be called.",
            show_default="this machine's own; any, with --host",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        _access(metavar="FILE", help="File with the bearer token for inference; or COVSHIFT_TOKEN."),
    ] = None,
    control_token_file: Annotated[
        Path | None,
        _access(
            metavar="FILE",
            help="File with the bearer token for control; or COVSHIFT_CONTROL_TOKEN.",
            show_default="the token for inference",
        ),
    ] = None,
    max_body: Annotated[int, _limit(help="Megabytes of a request.")] = 64,
    max_pixels: Annotated[int, _limit(help="Pixels of a picture.")] = 25_000_000,
    max_images: Annotated[int, _limit(help="Images in a request.")] = 256,
    max_queue: Annotated[int, _limit(help="Images that may wait.")] = 1024,
    max_cameras: Annotated[int, _limit(help="Cameras in all.")] = 10_000,
    max_resident: Annotated[int, _limit(help="Cameras in memory.")] = 1_000,
    idle: Annotated[float, _limit(min=0, help="Seconds until an idle camera leaves memory.")] = 600,
    rate: Annotated[
        float | None,
        _limit(min=0.01, help="Images per second of one client.", show_default="no limit"),
    ] = None,
    pictures: Annotated[
        bool | None,
        _watch(
            "--pictures/--no-pictures",
            help="Show the last picture of each camera on the live page.",
            show_default="only with --demo",
        ),
    ] = None,
    alarm_shift: Annotated[float | None, _watch(help="Shift of a camera that raises an alarm.")] = None,
    alarm_error: Annotated[
        float | None,
        _watch(help="Predicted error that raises an alarm, from 0 to 1."),
    ] = None,
    false_alarm_days: Annotated[
        float, _watch(help="Days between false alarms of a camera, at least, on average.")
    ] = 30,
    webhook: Annotated[
        str | None,
        _watch(metavar="URL", help="Address to send alarms to; COVSHIFT_WEBHOOK_TOKEN goes along."),
    ] = None,
    metrics_cameras: Annotated[int, _watch(min=0, help="Cameras that have metrics of their own.")] = 100,
    passes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Forward passes that run at once.", show_default="as many as there are cores, up to 4"
        ),
    ] = None,
    threads: Annotated[
        int | None, options.like(options.THREADS, show_default="for each pass an equal share of the cores")
    ] = None,
    engine: Annotated[
        str,
        options.like(
            options.ENGINE,
            help="Serve in this process (local) or by replicas on Ray.",
            rich_help_panel=_SCALE,
        ),
    ] = "local",
    replicas: Annotated[int, typer.Option(min=1, help="Number of replicas on Ray.", rich_help_panel=_SCALE)] = 2,
    address: Annotated[str | None, options.like(options.ADDRESS, rich_help_panel=_SCALE)] = None,
) -> None:
    """Serve a model whose statistics follow each camera, over HTTP.

    Examples:
    covshift serve --demo

    covshift serve --model builtin:resnet20

    covshift serve --model torchvision:resnet50 --source folder:clean --state redis://localhost

    covshift serve --model builtin:resnet20 --host 0.0.0.0 --token-file token

    covshift serve --model builtin:resnet20 --engine ray --replicas 2
    """
    build, make_app, serve = _imported()
    from covshift.cli.serve_ray import serve_on_ray
    from covshift.cli.serve_watch import Watching
    from covshift.serve.settings import Limits, Settings

    limits = Limits(
        body=max_body << 20,
        pixels=max_pixels,
        images=max_images,
        queue=max_queue,
        cameras=max_cameras,
        resident=max_resident,
        idle=idle,
        rate=rate,
    )
    hosts = tuple(options.split(allow_host)) or (("127.0.0.1", "localhost", "[::1]") if host in _LOOPBACK else None)
    settings = Settings(
        name=name,
        batch=batch,
        delay=delay / 1000,
        limits=limits,
        token=_token(token_file, "COVSHIFT_TOKEN"),
        control=_token(control_token_file, "COVSHIFT_CONTROL_TOKEN"),
        hosts=hosts,
        passes=passes,
        threads=threads,
        thumbnails=demo if pictures is None else pictures,
    )
    watching = Watching(alarm_shift, alarm_error, false_alarm_days, webhook, metrics_cameras)
    given = None if predictor is None else str(predictor)
    told = f"serving {'a demonstration' if demo else model} on"

    def announce(url: str) -> None:
        if host not in _LOOPBACK and settings.token is None:
            options.write_error("warning: whoever reaches this address may use the server; give --token-file")
        options.write_error(f"{told} {url}; Ctrl-C stops it")

    if engine == "ray" and not demo and model is not None:
        recipe: dict[str, Any] = {"model": model, "source": source, "policy": policy, "state": state}
        recipe |= {"replicas": replicas, "predictor": given, "settings": settings}
        serve_on_ray(recipe, watching, host, port, address, announce)
        return
    if engine != "local":
        raise CovshiftError(f"expected --engine local, or ray with --model, got {engine!r}")
    if demo:
        service, routers = watching.open_demo(settings, model, source, given)
    elif model is None:
        raise CovshiftError("expected a model to serve; give one with --model, or try --demo")
    else:
        service = build(model, settings, source=source, policy=policy, state=state, predictor=given)
        routers = [watching.open(service)]
    serve(make_app(service, routers), host, port, announce)


def _imported() -> tuple[Any, Any, Any]:
    try:
        from covshift.serve.app import make_app
        from covshift.serve.build import build
        from covshift.serve.run import serve
    except ImportError as error:
        missing = error.name or str(error)
        raise CovshiftError(f"serving needs {missing}; install it: pip install 'covshift[serve]'") from error
    return build, make_app, serve


def _token(file: Path | None, variable: str) -> str | None:
    """Return the token in a file or in a variable of the environment; the list of processes shows neither."""
    if file is None:
        return os.environ.get(variable) or None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise CovshiftError(f"cannot read the token in {file}: {error}") from error
    if not token:
        raise CovshiftError(f"expected a token in {file}, got an empty file")
    return token
