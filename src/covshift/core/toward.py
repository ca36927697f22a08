"""Correcting to training statistics, while clean images say how far the target has moved.

Training statistics are of augmented images, which no stream shows. Where that makes little difference they are the
better ones to correct to: of a million images, and those that the layers behind have learned on.
"""

from dataclasses import replace

from covshift.core.auto import changed
from covshift.core.places import NormLayer, holds_statistics
from covshift.core.source import Source
from covshift.core.statistics import Statistics
from covshift.core.wrappers import AnyModel, unwrap


def toward_training(source: Source, model: AnyModel, prior: float) -> Source:
    """Return a source that corrects to the training statistics, if these are as good as those of N clean images.

    They count for N images (Eq. 3), so they must be no farther from clean images than a mean over N of these is by
    chance, over all places together. If they are, or if there are none, the source is returned as it is.

    Args:
        source: what clean images look like inside of the model.
        model: the model that it was measured on.
        prior: N.
    """
    modules = dict(unwrap(model).named_modules())
    places = [
        NormLayer(path, modules[path], anchor=moments)
        for path, moments in source.statistics.items()
        if holds_statistics(modules[path])
    ]
    if not source.measured or not places:
        return source
    apart = varies = 0.0
    held = dict(source.statistics)
    for place in places:
        mean, var = (each.clone() for each in place.held)
        held[place.path] = replace(source.statistics[place.path], mean=mean, var=var)
        apart += float(changed(place, held[place.path]))
        varies += place.relative("both", source.spread[place.path] + source.spread_std[place.path])
    if prior * apart > varies:
        return source
    return Source(
        Statistics(held, source.statistics.fingerprint),
        source.spread,
        source.digest,
        measured=True,
        classes=source.classes,
        spread_std=source.spread_std,
        clean=source.statistics,
    )
