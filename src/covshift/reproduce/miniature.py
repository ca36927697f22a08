"""The paper in miniature: its tables and figures with the built-in networks on CIFAR-10, in an hour instead of weeks.

mCE is for ImageNet; here errors are means over the test corruptions, for n against N at severity 3 only. The paper's
numbers stand beside them to compare who wins and by how much, not to be met.
"""

from collections.abc import Sequence
from dataclasses import replace

from covshift.bench.methods import FULL, GRID_IMAGES, GRID_PRIORS, NONE, SCENARIOS, batch
from covshift.corruptions import names
from covshift.reproduce.locations import BUILTIN_DATA
from covshift.reproduce.paper_figures import published_grid
from covshift.reproduce.target import Job, Metric, Number, Target

IMAGES = 512
"""The number of the 10,000 images that are used by default: the largest n."""

MIDDLE = (3,)
"""The severities that n and N are compared at."""

_MIDDLE_NOTE = "mean error in % at severity 3 on CIFAR-10; the paper's is mCE on ImageNet-C"


def _on(model: str, *methods: str, holdout: bool = False) -> Job:
    corruptions = names("all") if holdout else names("test")
    return Job(model, BUILTIN_DATA, {"methods": methods, "corruptions": corruptions, "clean": False})


def _on_middle(model: str, *methods: str) -> Job:
    job = _on(model, *methods)
    return replace(job, settings={**job.settings, "severities": MIDDLE})


def _mixed(model: str, method: str) -> Job:
    return Job(model, BUILTIN_DATA, {"methods": (method,), "corruptions": (), "clean": False, "mixed": True})


def _robust() -> Target:
    rows = {
        "resnet20": ("vanilla", (76.69, 65.02, 62.24)),
        "resnet20-augmix": ("AugMix", (65.27, 55.40, 51.0)),
        "resnet20-noise": ("noise (the paper: ANT)", (63.37, 56.10, 53.57)),
    }
    jobs = {model: _on(model, *SCENARIOS, holdout=True) for model in rows}
    numbers = tuple(
        Number(label, method, jobs[model].name, Metric("top1", method), value)
        for model, (label, values) in rows.items()
        for method, value in zip(SCENARIOS, values, strict=True)
    )
    return Target("table1", "Robust networks under corruptions", tuple(jobs.values()), numbers)


def _normalisations() -> Target:
    rows = (
        ("Fixup", _on("resnet20-fixup", NONE), NONE, 72.00),
        ("GN", _on("resnet20-gn", NONE), NONE, 72.35),
        ("BN", _on("resnet20", NONE), NONE, 76.7),
        ("BN+adapt", _on("resnet20", FULL), FULL, 62.2),
    )
    numbers = tuple(
        Number("ResNet-20", column, job.name, Metric("top1", how), value) for column, job, how, value in rows
    )
    return Target("table3", "Normalisation that needs no adaptation", tuple(job for _, job, _, _ in rows), numbers)


def _controls() -> Target:
    rows = (
        ("BN w/o adapt", _mixed("resnet20", NONE), NONE, 61.08),
        ("BN w/ adapt", _mixed("resnet20", FULL), FULL, 60.87),
        ("GroupNorm", _mixed("resnet20-gn", NONE), NONE, 57.25),
        ("Fixup", _mixed("resnet20-fixup", NONE), NONE, 56.8),
    )
    numbers = tuple(Number(label, "mixed", job.name, Metric("top1", how, "mixed"), v) for label, job, how, v in rows)
    jobs = tuple(job for _, job, _, _ in rows)
    return Target("table4", "The control: mixed corruptions have no common shift", jobs, numbers)


def _grid() -> Target:
    grid, jobs, numbers = published_grid(), [], []
    for model, label, theirs in (("resnet20", "vanilla", "resnet50"), ("resnet20-augmix", "AugMix", "augmix")):
        cells = [(n, prior) for n in GRID_IMAGES for prior in GRID_PRIORS]
        job = _on_middle(model, *(batch(n, prior).name for n, prior in cells))
        jobs.append(job)
        numbers += [
            Number(
                f"{label}, n = {n}",
                f"N = {prior:g}",
                job.name,
                Metric("top1", batch(n, prior).name, severities=MIDDLE),
                grid[theirs, n, prior],
            )
            for n, prior in cells
        ]
    return Target("table12", "Batch size n and prior N", tuple(jobs), tuple(numbers), _MIDDLE_NOTE)


def _sample_size() -> Target:
    grid, jobs, numbers = published_grid(), [], []
    for model, label, theirs, base in (
        ("resnet20", "vanilla", "resnet50", 76.69),
        ("resnet20-augmix", "AugMix", "augmix", 65.27),
    ):
        cells = [(n, prior) for n in GRID_IMAGES for prior in (0, 16)]
        job = _on_middle(model, NONE, *(batch(n, prior).name for n, prior in cells))
        jobs.append(job)
        metric = Metric("top1", NONE, severities=MIDDLE)
        numbers.append(Number(label, "no adaptation", job.name, metric, base))
        for n, prior in cells:
            value = grid.get((theirs, n, float(prior)))
            metric = metric._replace(method=batch(n, prior).name)
            numbers.append(Number(label, f"n = {n}, N = {prior}", job.name, metric, value))
    return Target("figure2", "How many images adapting takes", tuple(jobs), tuple(numbers), _MIDDLE_NOTE)


def _architectures(networks: Sequence[str]) -> Target:
    jobs = tuple(_on(model, NONE, FULL) for model in networks if not model.endswith(("-gn", "-fixup")))
    numbers = tuple(
        Number(job.model, method, job.name, Metric("top1", method)) for job in jobs for method in (NONE, FULL)
    )
    return Target("figure3", "All networks with batch statistics", jobs, numbers, "the paper shows points, no numbers")


def miniature(networks: Sequence[str]) -> tuple[Target, ...]:
    """Return the tables and figures that can be made with these networks."""
    every = (_robust(), _normalisations(), _controls(), _grid(), _sample_size(), _architectures(networks))
    possible = []
    for target in every:
        jobs = tuple(job for job in target.jobs if job.model in networks)
        runs = {job.name for job in jobs}
        left = sorted({job.model for job in target.jobs} - set(networks))
        note = target.note or "mean error in % on CIFAR-10; the paper's is mCE or error on ImageNet"
        note += f"; left out, not built in here: {', '.join(left)}" if left else ""
        numbers = tuple(number for number in target.numbers if number.run in runs)
        if jobs:
            possible.append(Target(target.name, target.title, jobs, numbers, note))
    return tuple(possible)
