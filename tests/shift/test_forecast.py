"""Forecasts that know when they do not know: on digits that were never shown, with labels to compare with."""

import json

import numpy as np
import pytest
import torch
from digit_pictures import FIT, TEST, digits, prepare
from sklearn.linear_model import LogisticRegression
from torch import nn

import covshift
from covshift import CovshiftError, Source
from covshift.shift import Distance, Predictor
from covshift.shift.forecast import calibrate
from covshift.shift.forecast.advice import advise, label_some
from covshift.shift.forecast.beliefs import belief, fit_beliefs
from covshift.shift.forecast.cases import Case, Look
from covshift.shift.forecast.doubt import OUTSIDE, Band, Doubt
from covshift.shift.forecast.imitations import IMITATIONS, imitate
from covshift.shift.forecast.knowledge import shares_of
from covshift.shift.forecast.mix import apart, apart_by_chance, estimate_mix, unusual
from covshift.shift.forecast.observe import Batches, Observation, observe
from covshift.shift.forecast.pictures import DRAWN, VIEWED
from covshift.shift.forecast.words import verdict


def true_errors(predictor, images, labels):
    """The forecast for some images, and the true errors of the plain and of the adapted model."""
    seen = predictor.observe(Batches(images, prepare, 100))
    errors = [(seen.logits(which).argmax(1) != labels).double().mean().item() for which in ("plain", "adapted")]
    return predictor.predict_observed(seen), *errors


def test_one_class_alone_is_no_shift(predictor):
    images, labels = digits()
    for name in range(10):
        few = labels[900:] == name
        forecast, plain, adapted = true_errors(predictor, images[900:][few], labels[900:][few])
        assert adapted > plain + 0.1  # what full adaptation does to a single class
        assert forecast.advice.action != "adapt"
        if forecast.sure:
            assert forecast.plain.low <= plain <= forecast.plain.high <= forecast.plain.low + 0.2
            assert forecast.classes.skewed
            assert np.argmax(forecast.classes.shares) == name


def test_all_classes_are_no_skew(predictor):
    images, labels = digits()
    forecast, plain, _ = true_errors(predictor, images[TEST], labels[TEST])
    assert not forecast.classes.skewed
    assert forecast.sure
    assert forecast.plain.low <= plain <= forecast.plain.high
    assert (forecast.advice.action, forecast.advice.label) == ("nothing", ())


def test_pictures_of_something_else_cannot_be_told(predictor):
    noise = torch.randint(0, 256, (300, 3, 24, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    forecast = predictor.predict(noise)
    assert not forecast.sure
    assert "unlike all" in forecast.why or "few classes" in forecast.why
    assert (forecast.plain.low, forecast.plain.high) == (0, 1)
    assert forecast.advice.action == "label"
    assert len(set(forecast.advice.label)) == len(forecast.advice.label) == 97  # 0.25 · (1.96 / 0.1)²
    assert max(forecast.advice.label) < 300


def test_a_model_that_cannot_take_pixels_needs_its_preprocessing(trained, predictor, tmp_path):
    images, labels = digits()
    with pytest.raises(CovshiftError, match="say preprocess="):
        Predictor.fit(trained, images[FIT], labels[FIT])
    predictor.save(tmp_path / "kept")
    with pytest.raises(CovshiftError, match="say preprocess="):
        Predictor.load(tmp_path / "kept", trained).predict(images[TEST])


def test_few_images_cannot_be_told(predictor):
    assert predictor.predict(digits()[0][:20]).why == "there are only 20 images; at least 32 are needed"


def test_repeated_images_count_once(predictor):
    """A camera that stands still shows few images many times, which say no more than these few."""
    few = digits()[0][900:920]
    unsure = predictor.predict(few.repeat(20, 1, 1, 1))
    assert unsure.why.startswith("only 20 of the 400 images differ, the others being exact repeats; at least 32")
    assert sorted(unsure.advice.label) == list(range(20)), "not an image twice"
    some = digits()[0][900:1000]
    once, often = (predictor.predict(images) for images in (some, some.repeat(9, 1, 1, 1)))
    assert often.plain.high - often.plain.low == pytest.approx(once.plain.high - once.plain.low, rel=0.05)
    assert often.classes.skewed == once.classes.skewed
    assert often.scale.chance.layers == pytest.approx(once.scale.chance.layers)


def test_repeats_do_not_make_a_mix_of_classes_certain(predictor):
    """7 of 10 classes among 40 images may be chance; among 1,000 they are not, unless these are 40 shown 25 times."""
    answers = 50 * torch.eye(10)[torch.arange(1000) % 40 % 7]
    seen = predictor.observe(Batches(digits()[0][900:940], prepare, 40))
    many = seen._replace(plain=answers, adapted=answers, conditional=None, firsts=None)
    assert predictor.predict_observed(many).classes.skewed
    assert not predictor.predict_observed(many._replace(firsts=torch.arange(40))).classes.skewed


def test_intervals_narrow_with_the_number_of_images(predictor):
    images, _ = digits()
    shown = covshift.corrupt(images[900:], "fog", 2)
    widths = [(lambda each: each.high - each.low)(predictor.predict(shown[:n]).plain) for n in (100, 400, 897)]
    assert widths == sorted(widths, reverse=True)


def test_two_passes_and_a_half(trained, predictor):
    shown = []
    handle = trained.register_forward_pre_hook(lambda module, args: shown.append(len(args[0])))
    try:
        predictor.predict(digits()[0][900:1700])
    finally:
        handle.remove()
    assert sum(shown) <= 2.5 * 800


def test_distances_have_a_scale(predictor):
    """By chance, a few clean images lie about as far as it is said that they do."""
    images, _ = digits()
    few = [predictor.predict(images[900 + 48 * part :][:48]) for part in range(9)]
    measured = np.mean([forecast.distance.average for forecast in few])
    assert few[0].scale.chance.average == pytest.approx(measured, rel=0.3)
    assert few[0].scale.chance.layers.keys() == few[0].distance.layers.keys()
    far = predictor.predict(255 - images[TEST])
    assert far.scale.share > few[0].scale.share
    assert 0 <= min(far.scale.below.values()) <= max(far.scale.below.values()) <= 1


def test_a_source_of_the_calibration_images_has_a_scale_too(trained):
    """Other clean images lie farther from it than those do that it was measured on."""
    images, labels = digits()
    some, others = (900 + torch.randperm(897, generator=torch.Generator().manual_seed(0))).split(449)
    source = Source.measure(trained, prepare(images[some]), progress=False)
    options = {"preprocess": prepare, "severities": (1, 3, 5), "imitations": ("turned",), "source": source}
    learned = Predictor.fit(trained, images[some], labels[some], progress=False, **options)
    forecast = learned.predict(images[others])
    assert forecast.scale.chance.average == pytest.approx(forecast.distance.average, rel=0.5)
    assert forecast.sure


def test_a_network_with_nothing_to_adapt():
    """A linear classifier has neither statistics nor places; its confidence is all there is."""
    images, labels = digits()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 10))
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(40):
        loss = nn.functional.cross_entropy(model(prepare(images[:900])), labels[:900])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()
    learned = Predictor.fit(model, images[FIT], labels[FIT], preprocess=prepare, severities=(1, 3, 5))
    assert learned.source is None
    forecast, plain, _ = true_errors(learned, images[TEST], labels[TEST])
    assert forecast.plain.low <= plain <= forecast.plain.high
    assert (forecast.distance.layers, forecast.distance.average, forecast.scale) == ({}, 0, None)
    assert forecast.adapted == forecast.plain
    assert forecast.advice.action == "nothing"
    assert verdict(forecast)[-1] == "there is nothing to adapt in this network"


def test_a_predictor_of_an_older_version_is_not_sure(trained, predictor, tmp_path):
    predictor.save(tmp_path / "new")
    kept = Predictor.load(tmp_path / "new", trained, preprocess=prepare)
    images, _ = digits()
    assert kept.predict(images[TEST]) == predictor.predict(images[TEST])
    old = Predictor(trained, predictor.conditions, predictor._scale, prepare)
    old.save(tmp_path / "old")
    forecast = Predictor.load(tmp_path / "old", trained, preprocess=prepare).predict(images[TEST])
    assert "older version" in forecast.why
    assert forecast.plain.error == predictor.predict(images[TEST], method="judge").plain.error


def test_classes_are_not_taken_for_a_shift(trained):
    """Adapted past their class, images of one class get the answers that they had; adapted fully, they do not."""
    images, labels = digits()
    source = Source.measure(trained, prepare(images[FIT]))
    ones = prepare(images[900:][labels[900:] == 1])
    with torch.inference_mode():
        plain = trained(ones).argmax(1)
    kept = {}
    for name, shares in (("past", torch.eye(10)[1]), ("usual", None)):
        applied = covshift.estimate(trained, ones, source=source, classes=shares, progress=False).apply(trained)
        with torch.inference_mode():
            kept[name] = (trained(ones).argmax(1) == plain).double().mean().item()
        applied.restore()
    assert kept["past"] > 0.9 > kept["usual"]
    with pytest.raises(CovshiftError, match="10 shares that sum to 1"):
        covshift.estimate(trained, ones, source=source, classes=[0.5, 0.5])
    with pytest.raises(CovshiftError, match="a source that knows what classes do"):
        covshift.estimate(trained, ones, classes=[0.1] * 10)


def test_every_imitation_has_a_function():
    assert (*DRAWN, *VIEWED) == IMITATIONS


@pytest.mark.parametrize("name", IMITATIONS)
def test_imitations(name):
    images = digits()[0][:6].permute(0, 2, 3, 1).numpy()
    images = np.concatenate([images, np.random.default_rng(0).integers(0, 256, images.shape, np.uint8)])
    whole, half = (imitate(images, name, severity, seed=1) for severity in (5, 2))
    assert (whole.shape, whole.dtype) == (images.shape, np.uint8)
    assert (imitate(images, name, 5, seed=1) == whole).all()
    nchw = torch.from_numpy(images).permute(0, 3, 1, 2)
    assert (imitate(nchw, name, 5, seed=1).permute(0, 2, 3, 1).numpy() == whole).all()

    def off(made):
        return np.abs(made.astype(float) - images).mean()

    assert 0 < off(half) < off(whole)


def test_mix_of_classes():
    """Images drawn from a known mix, and the probabilities that Bayes' rule gives for a uniform one."""
    rng = np.random.default_rng(0)
    shares = np.array([0.7, 0.2, 0.1, 0.0])
    labels = rng.choice(4, 4000, p=shares)
    places = rng.normal(0, 1, (4000, 4)) + 1.5 * np.eye(4)[labels]
    found = estimate_mix(torch.from_numpy(1.5 * places), 1.0, torch.full((4,), 0.25))
    assert found.numpy() == pytest.approx(shares, abs=0.03)
    usual = torch.full((10,), 0.1)
    drawn = [apart(torch.from_numpy(rng.multinomial(50, [0.1] * 10) / 50), usual) for _ in range(300)]
    assert apart_by_chance(usual, 50) == pytest.approx(np.mean(drawn), rel=0.1)


def test_mix_of_a_thousand_classes_on_a_thousand_images():
    generator = torch.Generator().manual_seed(0)
    every, two, sample = (torch.randint(0, most, (1000,), generator=generator) for most in (1000, 2, 1000))
    usual = shares_of(sample, 1000)  # a third of the classes are missing from the sample
    found = []
    for labels in (every, 500 * two):
        signal = 5 * nn.functional.one_hot(labels, 1000) + torch.randn(1000, 1000, generator=generator)
        found.append(unusual(estimate_mix(5 * signal, 1.0, usual), usual, 1000))
    assert abs(found[0]) < 0.05
    assert found[1] > 0.7


def test_usual_shares_are_counted_where_chance_does_not_explain_them():
    generator = torch.Generator().manual_seed(0)
    even = shares_of(torch.randint(0, 100, (300,), generator=generator), 100)
    assert even.sum() == pytest.approx(1)
    assert even.min() > 0.005
    uneven = shares_of(torch.tensor([0] * 900 + [1] * 100), 2)
    assert uneven[0] == pytest.approx(0.9, abs=0.005)


def test_beliefs_are_a_logistic_regression():
    torch.manual_seed(0)
    plain, labels = 2 * torch.randn(2000, 4), torch.randint(0, 4, (2000,))
    adapted = plain + torch.randn(2000, 4) + 2 * torch.eye(4)[labels]
    found = fit_beliefs([Observation(plain, adapted, Distance({}))], [labels], 1.5)
    answers = plain.argmax(1)
    inputs = np.stack([torch.logit(belief(each, answers, 1.5), eps=1e-3).numpy() for each in (adapted, plain)], 1)
    want = LogisticRegression(C=1 / (1e-3 * 2000)).fit(inputs, answers != labels)  # the same ridge
    assert list(found[1:]) == pytest.approx(want.coef_[0].tolist(), abs=0.05)
    assert found.constant == pytest.approx(want.intercept_[0], abs=0.05)


def test_each_condition_is_shown_others_of_many_images(monkeypatch):
    monkeypatch.setattr(calibrate, "EACH", 40)
    setting = calibrate.Setting(nn.Flatten(), np.zeros((100, 4, 4, 3)), torch.arange(100), None, 10, None, None, 0)
    rows = [setting.rows(position) for position in range(5)]
    assert all(len(each.unique()) == 40 for each in rows)
    assert torch.cat(rows).bincount().tolist() == [2] * 100
    few = setting._replace(labels=torch.arange(40))
    assert torch.equal(few.rows(3), torch.arange(40))


def test_more_images_take_hardly_more_passes(trained, monkeypatch):
    monkeypatch.setattr(calibrate, "EACH", 120)
    images, labels = digits()
    shown = []
    handle = trained.register_forward_hook(lambda module, given, output: shown.append(len(output)))
    # The digits are in the order of their writers, and those of the last ones are harder.
    mixed = torch.randperm(897, generator=torch.Generator().manual_seed(0)) + 900
    fit, test = mixed[:600].tolist(), mixed[600:].tolist()
    found = Predictor.fit(trained, images[fit], labels[fit], preprocess=prepare, progress=False)
    handle.remove()
    # The source, two and a half passes for all, and twice for parts of the classes.
    assert sum(shown) < 44 * 2 * 120 + 9 * 600
    forecast = found.predict(images[test])
    error = (trained(prepare(images[test])).argmax(1) != labels[test]).double().mean().item()
    assert forecast.sure
    assert forecast.plain.low <= error <= forecast.plain.high


def cases(off):
    """Cases on a line, the imitations off it, with features that rise with the error."""
    rng = np.random.default_rng(0)
    rows = [
        ("clean", 0),
        *((name, s) for name in ("speckle_noise", "gaussian_blur", "spatter", "edges") for s in (1, 3, 5)),
    ]
    found = []
    for name, s in rows:
        signal = 0.1 + 0.1 * s
        error = signal + (off if name == "edges" else 0.0)
        features = tuple(np.log(signal) + rng.normal(0, 0.05, 3) + (3 if name == "edges" else 0))
        found.append(Case(name, s, error, signal, (signal, signal), (1e-5, 1e-5), features, (signal, 2 * signal)))
    return found


def test_doubt_is_greatest_where_it_was_wrong():
    given = cases(0.2)
    doubt = Doubt(given, 1000)
    near, drawn = (Look(case.signals, case.noise, case.features, case.distance) for case in (given[2], given[-1]))
    far = near._replace(features=tuple(value + 12 for value in near.features))
    assert doubt.at(near, 1000).plain.value == pytest.approx(0.4, abs=0.01)  # the imitations do not bend the line
    close, other = (doubt.at(look, 1000).plain for look in (near, drawn))
    assert close.high - close.low < 0.15 < 0.3 < other.high - other.low
    assert other.value - other.low < 0.05 < 0.25 < other.high - other.value  # they were above the line, all of them
    adapted = doubt.at(near, 1000).adapted
    assert adapted.high - adapted.low < 0.06
    assert doubt.at(near, 1000).novelty < OUTSIDE <= doubt.outside < doubt.at(far, 1000).novelty
    noisy = near._replace(noise=(0.01, 0.01))
    few = doubt.at(noisy, 1000).plain
    assert min(few.high - few.value, few.value - few.low) > 0.16  # counting on few images
    assert doubt.below([0.0, 9.0]) == [0, 1, 1]


def test_far_from_corruptions_the_lower_side_holds_what_a_left_out_one_is_below_the_line():
    """The only imitation is above the line, which says nothing of how far another kind of shift may be below it."""
    off = {"speckle_noise": -0.04, "spatter": 0.04}
    found = [case._replace(plain=case.plain + off.get(case.name, 0.0)) for case in cases(0.3)]
    doubt = Doubt(found, 1000)
    bands = [
        doubt.at(Look(case.signals, (1e-5, 1e-5), case.features, case.distance), 1000).plain
        for case in (found[2], found[-1])
    ]
    near, far = (band.value - band.low for band in bands)
    others = [case for case in found if case.name in ("clean", "gaussian_blur", "spatter")]
    line = np.polyfit([case.signals[0] for case in others], [case.plain for case in others], 1)
    left_out = max(np.polyval(line, case.signals[0]) - case.plain for case in found if case.name == "speckle_noise")
    assert far > max(near, left_out) > 0.05


def test_far_from_corruptions_the_interval_holds_the_worst_kind():
    found = cases(0.0)[:-3]
    for position, name in enumerate(IMITATIONS):
        off = 0.25 if name == "restyled" else 0.01
        features = tuple(np.log(0.3) + 2 + 0.1 * np.eye(3)[position % 3] * position)
        found.append(Case(name, 5, 0.3 + off, 0.3, (0.3, 0.3), (1e-5, 1e-5), features, (0.3, 0.6)))
    doubt = Doubt(found, 1000)
    for case in found[-len(IMITATIONS) :]:
        band = doubt.at(Look(case.signals, case.noise, case.features, case.distance), 1000).plain
        assert band.low <= case.plain <= band.high


@pytest.mark.parametrize(
    ("plain", "gain", "action"),
    [
        (0.5, Band(0.2, 0.1, 0.3), "adapt"),
        (0.5, Band(0.2, 0.005, 0.4), "label"),
        (0.5, Band(-0.1, -0.15, -0.05), "nothing"),
        (0.12, Band(0.0, -0.1, 0.1), "nothing"),
    ],
)
def test_advice(plain, gain, action):
    assert advise(plain, gain, 0.1, torch.rand(50), torch.arange(50)).action == action


def test_images_to_label_are_spread_from_sure_to_unsure():
    chances = torch.linspace(0, 1, 1001)[torch.randperm(1001, generator=torch.Generator().manual_seed(0))]
    chosen = chances[list(label_some("why", 0.5, chances, torch.arange(1001)).label)]
    assert float(chosen.mean()) == pytest.approx(0.5, abs=0.01)
    assert len(chosen) == 97
    assert len(label_some("why", 0.01, chances, torch.arange(1001)).label) == 20


def test_no_image_is_labelled_twice():
    firsts = torch.arange(0, 1001, 7)
    chosen = label_some("why", 0.5, torch.rand(1001), firsts).label
    assert set(chosen) <= set(firsts.tolist())
    assert len(set(chosen)) == len(chosen)


@pytest.mark.parametrize("labelled", [False, True])
def test_observing_past_classes_takes_every_second_image(trained, labelled):
    images, labels = digits()
    source = Source.measure(trained, prepare(images[FIT]))
    batches = Batches(images[:250], prepare, 50)
    given = [(batch, labels[:50]) for batch in batches] if labelled else batches
    seen = observe(trained, given, None, source)
    assert seen.conditional.rows.tolist() == [*range(0, 250, 2)]
    assert len(seen.conditional.logits) == 125
    few = seen.among([1, 2])
    assert few.conditional.logits.shape == (125, 2)


def test_damaged_knowledge_is_refused(trained, predictor, tmp_path):
    predictor.save(tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    length = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + length])
    for change in ({"beliefs": [1, 2]}, {"images": None}, {"cases": []}, {"gap": float("nan")}):
        known = json.loads(head["__metadata__"]["knowledge"]) | change
        metadata = head["__metadata__"] | {"knowledge": json.dumps(known)}
        made = json.dumps(head | {"__metadata__": metadata}).encode()
        made += b" " * (-len(made) % 8)
        (tmp_path / "broken").write_bytes(len(made).to_bytes(8, "little") + made + content[8 + length :])
        with pytest.raises(CovshiftError, match="not a whole predictor"):
            Predictor.load(tmp_path / "broken", trained)
