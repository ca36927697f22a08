"""Orders of images, and sequences of conditions, against what their definitions promise."""

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import covshift
from covshift.data import CLEAN, Condition
from covshift.data.arrays import CleanArray
from covshift.data.condition import MIXED, SEQUENCE
from covshift.data.orders import parse_order
from covshift.data.selection import Selection, choose
from covshift.data.sequences import Domain, Piece, domains, pieces, read_sequence, stream, time_pieces
from covshift.support.errors import CovshiftError

LABELS = np.random.default_rng(0).permutation(np.arange(2000) % 10)


def run_lengths(order: str, seed: int = 0) -> list[int]:
    """How long each class lasts before another one comes."""
    return [len(list(run)) for _, run in groupby(LABELS[choose(LABELS, order=order, seed=seed)])]


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=60),
    st.integers(1, 60),
    st.sampled_from(["shuffled", "label", "source", "dirichlet:0.1", "dirichlet:5", "runs:1", "runs:7"]),
    st.integers(0, 5),
)
def test_every_order_has_the_same_images(labels, limit, order, seed):
    labels = np.array(labels)
    chosen = choose(labels, limit=limit, order=order, seed=seed)
    assert sorted(chosen) == sorted(choose(labels, limit=limit, seed=seed))
    assert chosen == choose(labels, limit=limit, order=order, seed=seed)


def test_old_orders_stay_as_they_were():
    """Rows of old runs name these orders; computed here as they were before there were others."""
    shuffled = np.random.default_rng(3).permutation(len(LABELS))
    assert choose(LABELS, seed=3) == shuffled.tolist()
    assert choose(LABELS, order="source", seed=3) == list(range(2000))
    assert choose(LABELS, order="label", seed=3) == np.argsort(LABELS, kind="stable").tolist()


def test_runs_are_as_long_as_they_say():
    lengths = run_lengths("runs:25")
    assert all(length % 25 == 0 for length in lengths)  # two runs of a class may meet
    assert len(lengths) > 60
    assert run_lengths("runs:25", seed=1) != lengths


def test_the_smaller_the_concentration_the_longer_a_class_lasts():
    mean = {order: np.mean(run_lengths(order)) for order in ("shuffled", "dirichlet:100", "dirichlet:0.1", "label")}
    assert mean["shuffled"] < 1.2
    assert mean["label"] == 200
    # With shares that are all alike, each of ten slots holds a tenth of each class, one after the other.
    assert 15 < mean["dirichlet:100"] < 25 < mean["dirichlet:0.1"] < 200
    assert run_lengths("dirichlet:0.1", seed=1) != run_lengths("dirichlet:0.1")


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("labels", "did you mean 'label'"),
        ("label:3", "unknown order"),
        ("runs", "such as runs:20"),
        ("runs:2.5", "such as runs:20"),
        ("dirichlet:0", "such as dirichlet:0.1"),
        ("dirichlet:x", "such as dirichlet:0.1"),
        (5, "unknown order"),
    ],
)
def test_refuses_other_orders(order, message):
    with pytest.raises(CovshiftError, match=message):
        parse_order(order)


def texts(sequence: str, corruptions=("fog", "snow"), severities=(1, 3, 5)) -> list[str]:
    return [str(piece) for piece in pieces(read_sequence([sequence]), corruptions, severities)]


def test_named_sequences():
    assert texts("continual", severities=[5]) == ["fog/5", "snow/5"]
    assert texts("mixed", severities=[5]) == ["fog/5", "snow/5"]
    assert texts("gradual", ["fog"], (1, 2, 3, 4, 5)) == [f"fog/{level}" for level in (1, 2, 3, 4, 5, 4, 3, 2, 1)]
    with pytest.raises(CovshiftError, match=r"two severities or more for a gradual sequence, got \[5\]"):
        texts("gradual", severities=[5])
    assert texts("recurring", severities=[5]) == ["clean", "fog/5", "clean", "snow/5", "clean"]


def test_a_sequence_from_a_file(tmp_path):
    file = tmp_path / "night.txt"
    file.write_text("# a camera at dusk\nclean 50\n\nfog/5\nclean:30  # and back\n")
    stored = read_sequence([str(file)])
    assert stored == ("clean:50", "fog/5", "clean:30")
    assert read_sequence(stored) == stored
    assert pieces(stored, [], []) == [Piece(CLEAN, 50), Piece(Condition("fog", 5)), Piece(CLEAN, 30)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("fog\n", "got 'fog'"),
        ("fog/5:0\n", "got 'fog/5:0'"),
        ("fog/9\n", "severity from 1 to 5"),
        ("# no\n", "got none"),
    ],
)
def test_refuses_a_broken_file(content, message, tmp_path):
    file = tmp_path / "sequence.txt"
    file.write_text(content)
    with pytest.raises(CovshiftError, match=message):
        read_sequence([str(file)])


def shown(words, order="shuffled", images=40, corruptions=("fog", "snow")):
    labels = LABELS[:images]
    sequence = read_sequence(words)
    parts = pieces(sequence, corruptions, [5])
    found = stream(sequence, parts, choose(labels, order=order), labels, order, 0)
    return found, domains(sequence, parts, images), labels


def test_a_stream_shows_all_images_in_each_condition_and_draws_the_order_anew():
    found, parts, labels = shown(["continual"])
    assert parts == [Domain(Condition("fog", 5), 0, 40), Domain(Condition("snow", 5), 40, 80)]
    first, second = found[:40], found[40:]
    assert [each.image for each in first] == choose(labels)
    assert {each.condition.corruption for each in first} == {"fog"}
    assert {each.condition.corruption for each in second} == {"snow"}
    assert sorted(each.image for each in second) == sorted(each.image for each in first)
    assert [each.image for each in second] != [each.image for each in first]


def test_pieces_with_numbers_go_on_where_the_one_before_stopped():
    found, parts, labels = shown(["clean:15", "fog/5:15", "clean:30"])
    assert [(part.start, part.stop) for part in parts] == [(0, 15), (15, 30), (30, 60)]
    assert [each.image for each in found[:40]] == choose(labels)
    assert len(found) == 60


def test_a_mixed_stream_shows_each_image_once_in_each_condition_and_keeps_the_order():
    found, parts, labels = shown(["mixed"], order="runs:4", corruptions=("fog", "snow", "frost"))
    assert parts == [Domain(MIXED, 0, 120)]
    assert len(set(found)) == len(found) == 120
    assert 5 < sum(each.condition.corruption == "fog" for each in found[:40]) < 30
    runs = [len(list(run)) for _, run in groupby(labels[each.image] for each in found)]
    assert np.mean(runs) > 2.5  # the rest of a class is a shorter run; shuffled, it is 1.1


def test_time_pieces_do_not_cross_domains():
    parts = [Domain(CLEAN, 0, 120), Domain(Condition("fog", 5), 120, 150)]
    assert [(part.start, part.stop) for part in time_pieces(parts)] == [(0, 50), (50, 100), (100, 120), (120, 150)]


@pytest.mark.parametrize("memory", [0, 2**30], ids=["nothing kept", "all kept"])
def test_a_stream_has_the_pixels_that_corrupt_makes(memory):
    rng = np.random.default_rng(0)
    data = CleanArray("npz:x", rng.integers(0, 256, (40, 32, 32, 3), np.uint8), LABELS[:40])
    found, _, labels = shown(["recurring"])
    selection = Selection(data, choose(labels), np.asarray, memory=memory, stream=found)
    images = selection.images_in(SEQUENCE)
    assert len(images) == 200
    for _ in range(2):
        batches = list(images.batches(64))
        pixels = np.concatenate([batch.images for batch in batches])
        assert (np.concatenate([batch.labels for batch in batches]) == labels[[each.image for each in found]]).all()
        for each, picture in zip(found[::7], pixels[::7], strict=True):
            own = data.array(CLEAN)[[each.image]]
            wanted = own if each.condition == CLEAN else covshift.corrupt(own, *each.condition, indices=[each.image])
            assert (picture == wanted[0]).all()
