"""The paper's claims, one by one, beside what the stored rows say: `python docs/claims.py`."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from covshift.bench.measure import read_shift
from covshift.bench.methods import FULL, NONE, PARTIAL
from covshift.bench.results.difference import Difference, difference
from covshift.bench.results.metrics import Rate
from covshift.bench.results.paired import change, evenly
from covshift.data.condition import CLEAN, MIXED
from covshift.report.gather import Result, gather
from covshift.report.sections.distances import PANELS, prediction
from covshift.report.sections.orders import HARM, compared
from covshift.rivals import RIVALS
from covshift.support.tables import Table

RESULTS = Path(__file__).parents[1] / "results"
METHODS = RESULTS / "methods"

CONFIRMED, IN_PART, NOT_SEEN = "confirmed", "confirmed in part", "not seen here"
UNTESTED = "cannot be tested without the data"
ANCHORED = "full:anchored"
IMAGENET = "imagenet-mobilenet_v2"
ALONE = "batch:n=1,N=16"
LIVE = ("live:n=1,memory=200,anchored", "live:n=16,memory=200,anchored")
HALF_A_POINT = 0.005
STREAMS, MEASURING = "`covshift report results/methods`", "`covshift report results --measure 1000`"

HEAD = """# The paper's claims, one by one

<!-- Written by `python docs/claims.py` from the rows in results/; do not edit. -->

What the paper says, what the [stored rows](results/all.md) of our own small networks say of it, and the command that
shows the figures. Errors are means over 15 corruptions at five severities on CIFAR-10, if nothing else is said, with
95 % intervals; imagenet-mobilenet_v2 is on 2,000 of ImageNet's images at {severities}, the paper's are on ImageNet-C.
"Confirmed" means that the intervals of all networks agree, "in part" that those of some do, "not seen here" that what
there is may be chance.
"""

BEYOND = """## Beyond the paper

What the paper does not claim: networks that are corrected to [a measured source](howto/anchors.md), here of 500 clean,
unlabelled images that are not tested on (ImageNet: 1,000), and streams. Intervals are of paired differences, on the
same images: 2,000 for the networks, 1,000 or 400 for the streams.
"""

NEEDS_DATA = {
    "An adapted ResNet-50 reaches 62.2 % mCE, from 76.7 %.": "covshift reproduce table1 --imagenet-c DIR --row Vanilla",
    "DenseNets are more robust than ResNets, adapted and not.": "covshift reproduce figure3 --imagenet-c DIR",
    "Pre-training on very large sets leaves little to adapt.": "covshift reproduce table2 --imagenet-c DIR",
    "On ImageNet-V2 and ObjectNet adapting gains little, or loses.": (
        "covshift reproduce figure5 --imagenet DIR --imagenet-v2 DIR --objectnet DIR"
    ),
    "On ObjectNet, GroupNorm and Fixup are better than adapted BatchNorm.": (
        "covshift reproduce table4 --imagenet-c DIR --imagenet-r DIR --objectnet DIR"
    ),
    "On ImageNet-R adapting helps (ResNet-50 63.8 → 59.9 %).": "covshift reproduce table5 --imagenet-r DIR",
    "On ImageNet-A adapting does not help: more than 99 % err.": "covshift reproduce imagenet-a --imagenet-a DIR",
    "An adapted DeepAugment + AugMix ResNet-50 reaches 45.4 % mCE, from 53.6 %.": (
        "covshift reproduce table1 --imagenet-c DIR --row DeepAug"
    ),
}


class Finding(NamedTuple):
    """What our rows say of a claim."""

    verdict: str
    evidence: str
    command: str


class Claim(NamedTuple):
    """What the paper says, with its figures, and how to check it."""

    text: str
    check: Callable[[dict[str, Result]], Finding]


def across_networks(results: dict[str, Result]) -> Finding:
    """Adapting helps every network that holds statistics."""
    named = [results[name] for name in ("resnet20", "resnet32", "resnet20-augmix", "resnet20-noise", IMAGENET)]
    return Finding(agree(gain(result, FULL) for result in named), told(named, FULL), commands(named))


def single_sample(results: dict[str, Result]) -> Finding:
    """One image is enough, with a prior of 16; a network that is robust already may take a larger one."""
    named = [results[name] for name in ("resnet20-few-images", "resnet20-augmix-few-images")]
    evidence = f"at severity 3, {told(named, ALONE)}"
    last, larger = named[-1], ALONE.replace("16", "128")
    with_more = f"{evidence}; with N = 128 {last.name} {points(gain(last, larger))}"
    return Finding(agree(gain(result, ALONE) for result in named), with_more, commands(named))


def few_samples(results: dict[str, Result]) -> Finding:
    """Without a prior, 8 images break even, and 16 to 32 come close to all of them."""
    result = results["resnet20-few-images"]
    changes = {n: gain(result, f"batch:n={n},N=0") for n in (8, 32, 128)}
    by_number = ", ".join(f"n = {n}: {points(change)}" for n, change in changes.items())
    whole = gain(result, FULL)
    # Close: three quarters of the gain of all images.
    verdict = agree([changes[8], changes[32]]) if changes[32].value < 0.75 * whole.value else IN_PART
    at_once = f"all {result.image_count:,} images: {points(whole)}"
    evidence = f"at severity 3, against the model as it is: {by_number}; {at_once}"
    return Finding(verdict, evidence, commands([result]))


def full_at_least_partial(results: dict[str, Result]) -> Finding:
    """All images give at least as much as batches of 8."""
    named = [results[name] for name in ("resnet20-anchored", "resnet20-augmix-anchored", "resnet32", "resnet20-noise")]
    changes = [apart(result, PARTIAL, FULL) for result in named]
    each = [f"{result.name} {points(change)}" for result, change in zip(named, changes, strict=True)]
    verdict = CONFIRMED if not any(change.low > 0 for change in changes) else NOT_SEEN
    return Finding(verdict, f"full against partial: {'; '.join(each)}", commands(named))


def robust_ones(results: dict[str, Result]) -> Finding:
    """Networks that were trained to be robust gain, too."""
    named = [results[name] for name in ("resnet20-augmix", "resnet20-noise")]
    return Finding(agree(gain(result, FULL) for result in named), told(named, FULL), commands(named))


def without_batchnorm(results: dict[str, Result]) -> Finding:
    """GroupNorm and Fixup are better than BatchNorm as it is, and worse than adapted BatchNorm."""
    batch, others = results["resnet20-anchored"], [results[name] for name in ("resnet20-gn", "resnet20-fixup")]
    texts, changes = [], []
    for other in others:
        better, worse = between((batch, NONE), (other, NONE)), between((other, NONE), (batch, FULL))
        changes += [better, worse]
        compared = f"against BatchNorm as it is {points(better)}; adapted BatchNorm against it {points(worse)}"
        texts.append(f"{other.name} {show(needed(other.mean(NONE)))} ({compared})")
    rates = [show(needed(batch.mean(method))) for method in (NONE, FULL)]
    named = {"BatchNorm": batch} | {other.name: other for other in others}
    clean = ", ".join(f"{name} {show(needed(result.rate(NONE)))}" for name, result in named.items())
    evidence = f"BatchNorm {rates[0]} as it is, {rates[1]} adapted; {'; '.join(texts)}. Clean, for comparison: {clean}"
    return Finding(agree(changes), evidence, commands([batch, *others]))


def reverse(results: dict[str, Result]) -> Finding:
    """With the statistics of corrupted images, clean ones are recognised worse."""
    named = [results[name] for name in ("resnet20", "resnet20-augmix")]
    texts, changes = [], []
    for result in named:
        clean, turned = needed(result.rate(NONE)), needed(result.mean("reverse"))
        changes.append(difference(turned, clean))
        texts.append(f"{result.name} clean {show(clean)} → {show(turned)} by the statistics of corrupted images")
    return Finding(agree(changes), "; ".join(texts), commands(named))


def distance(results: dict[str, Result]) -> Finding:
    """The Wasserstein distance of statistics goes with the error of the model as it is."""
    texts, ranks = [], []
    for name in ("resnet20", "resnet20-augmix"):
        result = results[name]
        measured = read_shift(result)
        assert measured is not None
        far = [np.mean(each.distances["normalised Wasserstein"]) for each in measured.conditions]
        errors = [needed(result.rate(NONE, each.condition)).value for each in measured.conditions]
        ranks.append(rank_correlation(far, errors))
        texts.append(f"{name}: rank correlation {ranks[-1]:.2f} over {len(far)} conditions")
    verdict = CONFIRMED if min(ranks) > 0.7 else IN_PART if max(ranks) > 0.7 else NOT_SEEN
    return Finding(verdict, "; ".join(texts), MEASURING)


def line_by_kind(results: dict[str, Result]) -> Finding:
    """A line of error over distance, fitted to one corruption of a kind, holds for it and less for others."""
    texts, near, far = [], [], []
    for name in ("resnet20", "resnet20-augmix"):
        measured = read_shift(results[name])
        assert measured is not None
        (table,) = prediction(results[name], measured)
        assert isinstance(table, Table)
        for panel in (PANELS[NONE], PANELS[FULL]):
            lines = [dict(zip(table.columns, line, strict=True)) for line in table.lines if line[0].text == panel]
            off = [{column: float(line[column].text) for column in ("|Δ|", "holdout |Δ|")} for line in lines]
            near.append([each["holdout |Δ|"] for each in off])
            far.append([each["|Δ|"] for each in off])
            state = panel.partition(") ")[2]
            texts.append(f"{name} {state} {span(near[-1])}, others {span(far[-1])}")
    within = [max(map(round, each)) <= 2 for each in near] + [max(map(round, each)) <= 15 for each in far]
    verdict = CONFIRMED if all(within) else IN_PART if any(within) else NOT_SEEN
    return Finding(verdict, f"mean deviation in points, by kind: {'; '.join(texts)}", MEASURING)


def every_corruption(results: dict[str, Result]) -> Finding:
    """No corruption is left out of what adapting gains."""
    texts, lower = [], []
    for name in ("resnet20-anchored", "resnet20-augmix-anchored", IMAGENET):
        result = results[name]
        by_corruption = {c: list(group) for c, group in groupby(result.shared, key=lambda each: each.corruption)}
        changes = {c: needed_change(result.gain(FULL, group)) for c, group in by_corruption.items()}
        lower += [change.high < 0 for change in changes.values()]
        worst = max(changes, key=lambda each: changes[each].value)
        fallen = sum(change.high < 0 for change in changes.values())
        texts.append(f"{name} {fallen} of {len(changes)}, the worst {worst} {points(changes[worst])}")
    named = [results[name] for name in ("resnet20-anchored", "resnet20-augmix-anchored", IMAGENET)]
    verdict = CONFIRMED if all(lower) else IN_PART if any(lower) else NOT_SEEN
    return Finding(verdict, f"lower beyond chance in: {'; '.join(texts)}", commands(named))


def no_shift(results: dict[str, Result]) -> Finding:
    """On clean images there is nothing to gain, and with all of them nothing is lost."""
    named = [results[name] for name in ("resnet20-anchored", "resnet20-augmix-anchored", IMAGENET)]
    changes = {result.name: needed_change(result.gain(FULL, [CLEAN])) for result in named}
    texts = [f"{name} {points(change)}" for name, change in changes.items()]
    same = [not change.significant for change in changes.values()]
    verdict = CONFIRMED if all(same) else IN_PART if any(same) else NOT_SEEN
    return Finding(verdict, f"clean, by all images: {'; '.join(texts)}", commands(named))


def best_prior(results: dict[str, Result]) -> Finding:
    """For batches under 32 images the best N is neither 0 nor large."""
    result = results["resnet20-n-by-N"]
    best = {}
    for n in (1, 2, 4, 8, 16):
        means = {N: needed(result.mean(name)).value for (size, N), name in result.batches.items() if size == n}
        best[n] = min(means, key=lambda N: means[N])
    texts = [f"n = {n}: N = {N:.0f}" for n, N in best.items()]
    inside = [8 <= N <= 128 for N in best.values()]
    verdict = CONFIRMED if all(inside) else IN_PART if any(inside) else NOT_SEEN
    return Finding(
        verdict,
        f"at severity 3, least error on {result.image_count} images with {', '.join(texts)}",
        commands([result]),
    )


def mixed(results: dict[str, Result]) -> Finding:
    """Where every image has another corruption, there is nothing common to remove."""
    named = [results[name] for name in ("resnet20", "resnet20-augmix")]
    changes = {result.name: (gain(result, FULL, mixed=True), gain(result, FULL)) for result in named}
    texts = [f"{name} {points(one)}, all alike {points(alike)}" for name, (one, alike) in changes.items()]
    # A gain that is less than a third of the usual one counts as little.
    little = [one.value > alike.value / 3 for one, alike in changes.values()]
    none = [one.high > 0 for one, _ in changes.values()]
    verdict = CONFIRMED if all(none) else IN_PART if any(none) or all(little) else NOT_SEEN
    return Finding(verdict, "; ".join(texts), commands(named))


def any_network(results: dict[str, Result]) -> Finding:
    """Networks that hold no statistics gain by a measured source."""
    named = [results[name] for name in ("resnet20-gn", "resnet20-fixup", "vit", "convnext")]
    return Finding(agree(gain(result, ANCHORED) for result in named), told(named, ANCHORED), commands(named))


def better_than_training_statistics(results: dict[str, Result]) -> Finding:
    """BatchNorm networks do better by a measured source than by their training statistics."""
    named = [results[name] for name in ("resnet20-anchored", "resnet20-augmix-anchored", IMAGENET)]
    changes = [between((result, FULL), (result, ANCHORED)) for result in named]
    rates = [(show(needed(result.mean(FULL))), show(needed(result.mean(ANCHORED)))) for result in named]
    each = zip(named, rates, changes, strict=True)
    texts = [f"{result.name} {old} → {new} ({points(change)})" for result, (old, new), change in each]
    return Finding(agree(changes), f"by training statistics → by a source: {'; '.join(texts)}", commands(named))


def clean_stays(results: dict[str, Result]) -> Finding:
    """Clean images lose next to nothing by a measured source."""
    names = ("resnet20-gn", "resnet20-fixup", "vit", "convnext", "resnet20-anchored", "resnet20-augmix-anchored")
    named = [results[name] for name in (*names, IMAGENET)]
    changes = {result.name: needed_change(result.gain(ANCHORED, [CLEAN])) for result in named}
    texts = [f"{name} {points(change)}" for name, change in changes.items()]
    kept = [change.high < HALF_A_POINT for change in changes.values()]
    verdict = CONFIRMED if all(kept) else IN_PART if any(kept) else NOT_SEEN
    return Finding(verdict, f"clean, against the model as it is: {'; '.join(texts)}", commands(named))


def better_than_rivals(results: dict[str, Result]) -> Finding:
    """In each order `Live` errs less than the best of the rules that others published, image by image."""
    texts, changes = [], []
    for result in in_orders(results):
        rivals = [method for method in result.methods if method.partition(":")[0] in RIVALS]
        best = min(rivals, key=lambda method: needed(result.mean(method)).value)
        changes.append(between((result, best), (result, LIVE[0])))
        texts.append(f"{result.name} {best} {show(needed(result.mean(best)))} ({points(changes[-1])})")
    return Finding(agree(changes), f"against the best of {len(rivals)}: {'; '.join(texts)}", STREAMS)


def never_worse(results: dict[str, Result]) -> Finding:
    """No condition in any order is worse by more than a point with `Live`."""
    streams = [result for result in results.values() if result.folder.parent == METHODS or result.name == IMAGENET]
    cells = [(cell, method) for method in LIVE for cell in compared(streams, method)]
    worse = sum(cell.change > HARM for cell, _ in cells)
    worst, method = max(cells, key=lambda each: each[0].change)
    change = points(needed_change(worst.difference(method)))
    where = f"{worst.result.name}, {worst.condition}, {method}"
    evidence = f"{worse} of {len(cells)} cells lose more; the worst loses {change} ({where})"
    return Finding(IN_PART if worse else CONFIRMED, evidence, f"{STREAMS}, {commands([results[IMAGENET]])}")


def seeds(results: dict[str, Result]) -> Finding:
    """Networks differ by more than the same network does when it is trained with another seed."""
    first, second = results["resnet20-anchored"], results["resnet20-seed1"]
    methods = (NONE, ANCHORED)
    by_seed = {method: between((first, method), (second, method)) for method in methods}
    named = [results[name] for name in ("resnet20-augmix-anchored", "resnet20-gn", "resnet20-fixup", "vit", "convnext")]
    texts, larger = [], []
    for other in named:
        changes = [between((first, method), (other, method)) for method in methods]
        larger += [abs(change.value) > abs(seed.value) for change, seed in zip(changes, by_seed.values(), strict=True)]
        texts.append(f"{other.name} {' and '.join(map(points, changes))}")
    verdict = CONFIRMED if all(larger) else IN_PART if any(larger) else NOT_SEEN
    seed = " and ".join(map(points, by_seed.values()))
    evidence = f"another seed of resnet20, as it is and anchored: {seed}; other networks against it: {'; '.join(texts)}"
    return Finding(verdict, evidence, commands([first, second, *named]))


CLAIMS = (
    Claim("Adapting improves robustness across architectures (25 networks, about 10 points of mCE).", across_networks),
    Claim("Robust networks gain, too (AugMix 65.3 → 51.0 % mCE).", robust_ones),
    Claim("Adapting lowers the error under every corruption.", every_corruption),
    Claim("With N = 16, a single image is enough to gain (76.7 → 71.4 % mCE, AugMix 65.3 → 62.1).", single_sample),
    Claim("Without a prior about 8 images break even, and 16 to 32 come close to all of them.", few_samples),
    Claim("For batches of less than 32 images the best N is from 8 to 128.", best_prior),
    Claim("Full adaptation is at least as good as partial.", full_at_least_partial),
    Claim(
        "GroupNorm and Fixup are more robust than BatchNorm as it is, and less than adapted BatchNorm "
        "(72.4 and 72.0 % mCE against 76.7 and 62.2).",
        without_batchnorm,
    ),
    Claim("Statistics of corrupted images make clean ones worse (reverse adaptation).", reverse),
    Claim("The distance of statistics predicts the loss.", distance),
    Claim(
        "A line of error over distance is off by 1 to 2 points within a corruption, by 5 to 15 for others of its kind.",
        line_by_kind,
    ),
    Claim("Without a shift, on clean images, adapting by many of them changes nothing.", no_shift),
    Claim("Where images share no shift, as in mixed ImageNet-C, adapting gains nothing.", mixed),
)


OWN_CLAIMS = (
    Claim("Networks differ by more than seeds of one network do.", seeds),
    Claim("A measured source makes networks adaptable that hold no statistics.", any_network),
    Claim(
        "BatchNorm networks gain more by a measured source than by training statistics.",
        better_than_training_statistics,
    ),
    Claim("By a measured source clean images lose less than half a point.", clean_stays),
    Claim(
        "In random order, in a camera's and sorted by class, `Live` errs less than every rival at severity 5.",
        better_than_rivals,
    ),
    Claim("In no condition and order does `Live` lose more than a point.", never_worse),
)


def in_orders(results: dict[str, Result]) -> list[Result]:
    """Return the runs of all methods, a network's in three orders."""
    return [results[f"resnet20-{order}"] for order in ("shuffled", "dirichlet", "label")]


def gain(result: Result, method: str, *, mixed: bool = False) -> Difference:
    """Return by how much a method changes the error, in the mean over corruptions or on mixed images."""
    return needed_change(result.gain(method, [MIXED]) if mixed else result.gain(method))


def between(first: tuple[Result, str], second: tuple[Result, str]) -> Difference:
    """Return the mean error of the second network and method minus that of the first, on the same images."""
    (one, before), (other, after) = first, second
    assert one.errors is not None
    assert other.errors is not None
    assert one.images == other.images
    shared = [condition for condition in one.shared if condition in other.shared]
    return needed_change(change((one.errors, before), (other.errors, after), evenly(shared)))


def needed_change(change: Difference | None) -> Difference:
    """Return a difference that the stored runs have."""
    assert change is not None
    return change


def apart(result: Result, first: str, second: str) -> Difference:
    """Return the mean error of the second method minus that of the first; paired where answers were kept."""
    if result.errors is not None:
        return between((result, first), (result, second))
    return difference(needed(result.mean(first)), needed(result.mean(second)))


def told(results: Iterable[Result], method: str) -> str:
    """Return the mean errors of the model as it is and by a method, and their difference."""
    each = [
        (r.name, show(needed(r.mean(NONE))), show(needed(r.mean(method))), points(gain(r, method))) for r in results
    ]
    return "; ".join(f"{name} {before} → {after} ({change})" for name, before, after, change in each)


def needed(rate: Rate | None) -> Rate:
    """Return a rate that the stored runs have."""
    assert rate is not None
    return rate


def agree(changes: Iterable[Difference]) -> str:
    """Return what these say of a claim that errors fall."""
    falls = [change.high < 0 for change in changes]
    return CONFIRMED if all(falls) else IN_PART if any(falls) else NOT_SEEN


def span(values: Iterable[float]) -> str:
    """Return the least and the largest number."""
    ordered = sorted(values)
    return f"{ordered[0]:.1f} to {ordered[-1]:.1f}"


def rank_correlation(first: list[float], second: list[float]) -> float:
    """Return Spearman's correlation."""
    ranks = [np.argsort(np.argsort(values)) for values in (first, second)]
    return float(np.corrcoef(ranks)[0, 1])


def show(rate: Rate) -> str:
    """Return a rate in per cent."""
    return f"{100 * rate.value:.1f} %"


def points(change: Difference) -> str:
    """Return a difference in points, with its interval."""
    return f"{100 * change.value:+.1f}, {100 * change.low:+.1f} to {100 * change.high:+.1f}"


def commands(results: Iterable[Result]) -> str:
    """Return what prints the tables that the figures are from."""
    return ", ".join(f"`covshift bench table results/{result.name}`" for result in results)


def written() -> str:
    """Return the page."""
    results = {result.name: result for result in gather([RESULTS, METHODS]).results}
    severities = sorted({condition.severity for condition in results[IMAGENET].shared})
    at = f"severity {severities[0]}" if len(severities) == 1 else f"severities {' and '.join(map(str, severities))}"
    papers, ours = ({claim: claim.check(results) for claim in claims} for claims in (CLAIMS, OWN_CLAIMS))
    lines = [
        HEAD.format(severities=at),
        f"{_counts(papers)}; {len(NEEDS_DATA)} more cannot be tested without the data.\n",
    ]
    lines += [_paragraph(claim, finding) for claim, finding in papers.items()]
    lines += [f"**{text}** {UNTESTED.capitalize()}: `{command}`.\n" for text, command in NEEDS_DATA.items()]
    lines += [BEYOND, f"{_counts(ours)}.\n", *(_paragraph(claim, finding) for claim, finding in ours.items())]
    return "\n".join(lines).rstrip() + "\n"


def _counts(findings: Mapping[Claim, Finding]) -> str:
    counts = Counter(finding.verdict for finding in findings.values())
    each = [f"{counts[verdict]} are {verdict}" for verdict in (CONFIRMED, IN_PART, NOT_SEEN) if counts[verdict]]
    return f"Of {len(findings)} claims, {' and '.join(each)}"


def _paragraph(claim: Claim, finding: Finding) -> str:
    return f"**{claim.text}** {finding.verdict.capitalize()}: {finding.evidence}. Shown by {finding.command}.\n"


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(written())
