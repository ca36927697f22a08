"""Paired intervals: they cover what they claim to cover, and agree with tests and intervals of others."""

import math
from pathlib import Path

import numpy as np
import pytest
from runs import a_row, a_run
from scipy.optimize import minimize_scalar
from scipy.stats import bootstrap, norm

from covshift.bench.results import metrics
from covshift.bench.results.answers import Answers, ImageTable
from covshift.bench.results.difference import difference, mean_difference
from covshift.bench.results.metrics import AS_PUBLISHED, Baseline, rate
from covshift.bench.results.paired import FEW, ImageErrors, Pairs, ce_weights, change, evenly, mce_weights, pairs, tango
from covshift.bench.results.store import Store
from covshift.bench.results.table import methods_table
from covshift.corruptions import names
from covshift.data.condition import CLEAN, SEVERITIES, Condition

TEST = [Condition(name, severity) for name in names("test") for severity in SEVERITIES]


class Known(ImageErrors):
    """Errors that a test has made up: an array [conditions, images] for each method."""

    def __init__(self, wrong: dict[str, np.ndarray], conditions: list[Condition]) -> None:
        self.indices = np.arange(next(iter(wrong.values())).shape[1])
        self._wrong = {name: dict(zip(conditions, lines.astype(np.int8), strict=True)) for name, lines in wrong.items()}

    def wrong(self, method, condition, *, top5=False):
        return self._wrong[method].get(condition)


def population(random: np.random.Generator, images: int, conditions: int, gain: float) -> dict[str, np.ndarray]:
    """Images of which some are hard in all conditions; adaptation repairs some answers and breaks others."""
    hardness = random.normal(-0.8, 1.2, images) + random.normal(0, 0.6, (conditions, 1))
    first = hardness + random.normal(0, 0.8, (conditions, images))
    second = hardness - gain + random.normal(0, 0.8, (conditions, images))
    return {"none": first > 0, "full": second > 0}


@pytest.mark.parametrize(
    ("images", "conditions", "gain"), [(500, 15, 0.1), (150, 75, 0.05), (200, 1, 0.3), (1000, 1, 0.0), (60, 5, 0.2)]
)
def test_ninety_five_of_a_hundred_intervals_cover_the_truth(images, conditions, gain):
    among = TEST[:conditions]
    # The truth, for conditions that are always the same: from very many images.
    fixed = np.random.default_rng(1).normal(0, 0.6, (conditions, 1))

    def drawn(random: np.random.Generator, number: int) -> dict[str, np.ndarray]:
        hardness = random.normal(-0.8, 1.2, number) + fixed
        return {
            name: hardness - less + random.normal(0, 0.8, hardness.shape) > 0
            for name, less in (("none", 0.0), ("full", gain))
        }

    # Normal in each condition: the variances of hardness and of what is each answer's own add up.
    wide = math.hypot(1.2, 0.8)
    truth = float((norm.cdf((fixed - 0.8 - gain) / wide) - norm.cdf((fixed - 0.8) / wide)).mean())
    random, covered, repeats = np.random.default_rng(2), 0, 1200
    for _ in range(repeats):
        errors = Known(drawn(random, images), among)
        found = change((errors, "none"), (errors, "full"), evenly(among))
        covered += found.low <= truth <= found.high
    assert 0.93 <= covered / repeats <= 0.97


def test_an_interval_over_all_conditions_is_at_most_half_as_wide_as_that_of_independent_rates():
    wrong = population(np.random.default_rng(0), 500, 75, 0.2)
    errors = Known(wrong, TEST)
    paired = change((errors, "none"), (errors, "full"), evenly(TEST))
    pairs = [(rate(int(a.sum()), 500), rate(int(b.sum()), 500)) for a, b in zip(*wrong.values(), strict=True)]
    before = mean_difference(difference(*pair) for pair in pairs)
    assert paired.value == pytest.approx(before.value, abs=1e-12)
    assert paired.high - paired.low < 0.5 * (before.high - before.low)


def test_resampling_agrees_with_scipys():
    wrong = population(np.random.default_rng(3), 400, 15, 0.2)
    errors = Known(wrong, TEST[:15])
    ours = change((errors, "none"), (errors, "full"), evenly(TEST[:15]))
    values = wrong["full"].mean(0) - wrong["none"].mean(0)
    theirs = bootstrap((values,), np.mean, method="BCa", n_resamples=5000, rng=0).confidence_interval
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs), abs=0.05 * (ours.high - ours.low))


def score_by_search(more: int, fewer: int, images: int, delta: float) -> float:
    """McNemar's score at a difference other than zero, with the likelihood maximised by search, not by a formula."""
    neither = images - more - fewer

    def negative(share: float) -> float:
        cells = ((more, share + delta), (fewer, share), (neither, 1 - 2 * share - delta))
        return -sum(count * math.log(max(value, 1e-300)) for count, value in cells if count)

    low, high = max(0.0, -delta), (1 - delta) / 2
    share = minimize_scalar(negative, bounds=(low, high), method="bounded", options={"xatol": 1e-12}).x
    return (more - fewer - images * delta) / math.sqrt(images * (2 * share + delta - delta**2))


@pytest.mark.parametrize(("more", "fewer", "images"), [(1, 12, 44), (3, 0, 50), (5, 5, 50), (9, 2, 500), (0, 1, 20)])
def test_few_changes_have_tangos_interval(more, fewer, images):
    for end, z in zip(tango(more, fewer, images), (1.959964, -1.959964), strict=True):
        assert score_by_search(more, fewer, images, end) == pytest.approx(z, abs=2e-3)


@pytest.mark.parametrize("fewer", range(12))
@pytest.mark.parametrize("more", range(12))
def test_few_changes_exceed_chance_where_mcnemars_test_finds_it(more, fewer):
    low, high = tango(more, fewer, 300)
    statistic = (more - fewer) ** 2 / (more + fewer) if more + fewer else 0.0
    assert (low > 0 or high < 0) == (statistic > 3.841459)
    assert low <= (more - fewer) / 300 <= high


def test_few_changes_cover_the_truth():
    random, covered, repeats = np.random.default_rng(4), 0, 4000
    for _ in range(repeats):
        broken, repaired, _ = random.multinomial(300, [0.01, 0.03, 0.96])
        low, high = tango(int(broken), int(repaired), 300)
        covered += low <= -0.02 <= high
    assert 0.93 <= covered / repeats <= 0.975


def test_the_seam_between_few_and_many_changes_covers_the_truth():
    random, covered, repeats, few = np.random.default_rng(5), 0, 1500, 0
    for _ in range(repeats):
        kinds = random.choice(3, 200, p=[0.88, 0.04, 0.08])  # unchanged, broken, repaired: 24 change on average
        before = np.where(kinds == 0, random.random(200) < 0.3, kinds == 2)[None]
        after = np.where(kinds == 0, before, kinds == 1)
        found = Pairs(before.astype(np.int8), after.astype(np.int8), np.ones(1)).change()
        covered += found.low <= -0.04 <= found.high
        few += (kinds > 0).sum() < FEW
    assert 0.3 < few / repeats < 0.7
    assert 0.93 <= covered / repeats <= 0.97


def test_an_unchanged_run_has_an_interval_around_zero():
    wrong = np.random.default_rng(0).random((3, 200)) < 0.3
    errors = Known({"none": wrong, "full": wrong}, TEST[:3])
    found = change((errors, "none"), (errors, "full"), evenly(TEST[:3]))
    assert found.value == 0
    assert found.low < 0 < found.high < 0.03


def test_mce_is_the_weighted_sum():
    random = np.random.default_rng(0)
    errors = {condition: random.random() for condition in [CLEAN, *TEST]}
    other = Baseline("mine", 0.1, {name: 0.2 + random.random() for name in names("test")})
    for baseline in (AS_PUBLISHED, other):
        for relative, metric in ((False, metrics.mce), (True, metrics.relative_mce)):
            weights = mce_weights(baseline, relative=relative)
            assert sum(weight * errors[c] for c, weight in weights.items()) == pytest.approx(metric(errors, baseline))
        shares = metrics.corruption_errors(errors, baseline)
        for name in names("test"):
            weights = ce_weights(name, baseline)
            assert sum(weight * errors[c] for c, weight in weights.items()) == pytest.approx(shares[name])
    assert mce_weights(Baseline("mine", None, other.errors), relative=True) == {}
    assert mce_weights(Baseline("mine", 0.1, {})) == {}


def stored(folder: Path, wrong: dict[str, np.ndarray], conditions: list[Condition], shown=None, **changes) -> Store:
    """A run folder with these errors; images that are not shown have no answer."""
    images = next(iter(wrong.values())).shape[1]
    table = ImageTable(np.random.default_rng(9).permutation(images), np.zeros(images, np.int64), ("",) * images)
    store = Store.create(folder, a_run(**changes).model_copy(update={"data_images": images}))
    store.keep_answers(table)
    for method, lines in wrong.items():
        for condition, line in zip(conditions, lines, strict=True):
            kept = np.ones(images, bool) if shown is None else shown[condition]
            classes, top5 = line[kept].astype(np.int64), np.ones(kept.sum(), bool)
            answers = Answers(np.flatnonzero(kept), classes, top5, np.zeros(kept.sum(), np.uint8))
            row = a_row(f"{condition}/{method}", int(line[kept].sum()))
            row = row.model_copy(update={"images": int(kept.sum()), "top5_errors": 0})
            store.append([row], {row.cell: answers})
    return Store(folder)


def test_what_is_stored_gives_the_same_interval_whatever_the_order(tmp_path):
    wrong = population(np.random.default_rng(0), 120, 3, 0.3)
    store = stored(tmp_path, wrong, TEST[:3])
    errors, known = ImageErrors(store.book, store.rows()), Known(wrong, TEST[:3])
    found = change((errors, "none"), (errors, "full"), evenly(TEST[:3]))
    assert found == change((known, "none"), (known, "full"), evenly(TEST[:3]))
    assert change((errors, "none"), (errors, "partial"), evenly(TEST[:3])) is None


def test_images_that_could_not_be_read_do_not_move_the_value(tmp_path):
    random = np.random.default_rng(0)
    wrong = population(random, 150, 3, 0.3)
    shown = {condition: random.random(150) < 0.9 for condition in TEST[:3]}
    store = stored(tmp_path, wrong, TEST[:3], shown)
    errors = ImageErrors(store.book, store.rows())
    rates = [{row.cell: row.top1_errors / row.images for row in store.rows() if row.method == m} for m in wrong]
    expected = np.mean(list(rates[1].values())) - np.mean(list(rates[0].values()))
    found = change((errors, "none"), (errors, "full"), evenly(TEST[:3]))
    assert found.value == pytest.approx(expected)
    assert found.low < found.value < found.high


def test_the_table_has_paired_intervals_or_says_why_not(tmp_path):
    wrong = population(np.random.default_rng(0), 120, 5, 0.5)
    fog = [Condition("fog", severity) for severity in SEVERITIES]
    store = stored(tmp_path, wrong, fog, corruptions="fog", clean=False, methods="none,full")
    plain = methods_table(store.rows(), store.run)
    paired = methods_table(store.rows(), store.run, errors=ImageErrors(store.book, store.rows()))
    assert "the answers to the images were not kept" in " ".join(plain.notes)
    assert "paired differences" in " ".join(paired.notes)
    for before, after in zip(plain.lines, paired.lines, strict=True):
        assert before[-1].value == pytest.approx(after[-1].value)
        assert before[-1].low < before[-1].value < before[-1].high
        assert after[-1].low < after[-1].value < after[-1].high
    rates = {(row.method, row.severity): rate(row.top1_errors, row.images) for row in store.rows()}
    newcombe = mean_difference(difference(rates["none", each], rates["full", each]) for each in SEVERITIES)
    before, after = (next(line[-1] for line in each.lines if line[0].text == "fog") for each in (plain, paired))
    assert (before.low, before.high) == pytest.approx(newcombe[1:])
    assert before.low < after.low < after.high < before.high


def test_a_table_without_answers_has_intervals_of_mce_too(tmp_path):
    run = a_run(corruptions="test", methods="none,full").model_copy(update={"imagenet": True})
    rows = [
        a_row(f"{c.corruption}/{c.severity}/{m}", e) for c in [CLEAN, *TEST] for m, e in (("none", 60), ("full", 40))
    ]
    lines = {line[0].text: line[-1] for line in methods_table(rows, run).lines}
    each = difference(rate(60, 100), rate(40, 100))
    weight = sum(mce_weights(AS_PUBLISHED).values())
    found = lines["mCE (AlexNet = 100)"]
    assert (found.value, found.low, found.high) == pytest.approx(tuple(weight * end for end in each))
    assert lines["relative mCE (AlexNet = 100)"].low < lines["relative mCE (AlexNet = 100)"].value
    assert all(cell.low < cell.value < cell.high for cell in lines.values())


def test_one_picture_that_could_not_be_read_leaves_few_changes_few(tmp_path):
    """Else rates that differ would make every image look changed, and resampling would be trusted."""
    before = np.random.default_rng(0).random((3, 200)) < 0.3
    after = before.copy()
    after[0, :4] = ~after[0, :4]
    hidden = before.astype(np.int8)
    errors = Known({"none": before, "full": after}, TEST[:3])
    whole = change((errors, "none"), (errors, "full"), evenly(TEST[:3]))
    for method, lines in (("none", hidden), ("full", after.astype(np.int8))):
        lines[1, 100] = -1
        errors._wrong[method] = dict(zip(TEST[:3], lines, strict=True))
    less = change((errors, "none"), (errors, "full"), evenly(TEST[:3]))
    assert less[1:] == pytest.approx(whole[1:], abs=2e-3)


def test_images_that_could_never_be_read_say_nothing_of_a_change():
    unread = np.full((1, 4), -1, np.int8)
    assert Pairs(unread, unread, np.ones(1)).change() == (0, -1, 1)


def test_pairs_of_some_images_are_those_images():
    wrong = population(np.random.default_rng(5), 300, 4, 0.4)
    mine = np.arange(300) % 3 == 0
    known = [Known({name: lines[:, mine] for name, lines in wrong.items()}, TEST[:4]), Known(wrong, TEST[:4])]
    among = [pairs((errors, "none"), (errors, "full"), evenly(TEST[:4])) for errors in known]
    assert among[0].change() == pytest.approx(among[1].among(mine).change())
