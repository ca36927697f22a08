"""Errors by class, confusions and calibration, against scikit-learn and sums by hand."""

import numpy as np
import pytest
from runs import a_row, a_run
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix

from covshift.bench.results.answers import Answers, ImageTable
from covshift.bench.results.by_class import BINS, Pooled, by_class, calibration_error, confusions, pool, reliability
from covshift.bench.results.store import Store


def answers(seed: int, number: int = 4000) -> Pooled:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 5, number)
    confidence = np.rint(255 * random.uniform(0.2, 1, number)) / 255
    right = random.random(number) < confidence**2  # too sure of itself
    return Pooled(labels, np.where(right, labels, (labels + random.integers(1, 5, number)) % 5), confidence)


def test_errors_and_confusions_are_those_of_scikit_learn():
    before, after = answers(0), answers(1)
    tables = [
        confusion_matrix(each.labels, each.classes, labels=range(5), normalize="true") for each in (before, after)
    ]
    for share in by_class(before):
        assert share.wrong / share.answers == pytest.approx(1 - tables[0][share.label, share.label])
    pairs = confusions(before, after)
    assert len(pairs) == 20
    assert [abs(pair.change) for pair in pairs] == sorted((abs(pair.change) for pair in pairs), reverse=True)
    for pair in pairs:
        assert (pair.before, pair.after) == pytest.approx(tuple(table[pair.label, pair.answer] for table in tables))


def test_few_images_of_a_thousand_classes():
    pooled = Pooled(np.array([7, 990]), np.array([8, 990]), np.ones(2))
    assert [tuple(share) for share in by_class(pooled)] == [(7, 1, 1), (990, 1, 0)]
    assert [tuple(pair) for pair in confusions(pooled, pooled._replace(classes=pooled.labels))] == [(7, 8, 1, 0)]


def test_the_diagram_is_that_of_scikit_learn():
    pooled = answers(0)
    # Their bins are open on the other side; nothing is on an edge.
    shifted = pooled._replace(confidence=np.clip(pooled.confidence + 1e-6, 0, 1))
    right, confidence = calibration_curve(shifted.right, shifted.confidence, n_bins=BINS)
    found = reliability(shifted)
    assert [each.right for each in found] == pytest.approx(right)
    assert [each.confidence for each in found] == pytest.approx(confidence)
    assert sum(each.answers for each in found) == len(pooled.labels)


def test_a_model_that_knows_its_errors_has_none():
    random = np.random.default_rng(2)
    confidence = random.uniform(0, 1, 200_000)
    labels = np.zeros(len(confidence), np.int64)
    known = Pooled(labels, (random.random(len(confidence)) >= confidence).astype(np.int64), confidence)
    assert calibration_error(reliability(known)) < 0.01
    assert calibration_error(reliability(known._replace(confidence=np.ones(len(labels))))) == pytest.approx(
        0.5, abs=0.01
    )


def test_answers_of_several_cells_are_pooled(tmp_path):
    random = np.random.default_rng(0)
    table = ImageTable(np.arange(100), random.integers(0, 5, 100), ("",) * 100)
    store = Store.create(tmp_path, a_run())
    store.keep_answers(table)
    for wrong in (5, 10):
        classes = (table.labels + (np.arange(100) < wrong)) % 5
        kept = Answers(table.indices, classes, np.arange(100) > 0, np.full(100, 255, np.uint8))
        store.append([a_row(f"fog/{wrong}/none", wrong)], {f"fog/{wrong}/none": kept})
    store.append([a_row("fog/3/none")])
    rows = Store(tmp_path).rows()
    pooled = pool(store.book, rows[:2])
    assert (~pooled.right).sum() == 15
    assert pooled.labels.tolist() == [*table.labels, *table.labels]
    assert set(pooled.confidence) == {1.0}
    assert pool(store.book, rows) is None
