"""A small network for digits, and a predictor of its errors, for each module that asks for them."""

import pytest
from digit_pictures import FIT, digits, prepare, train

from covshift.shift import Predictor


@pytest.fixture(scope="module")
def trained():
    return train()


@pytest.fixture(scope="module")
def predictor(trained):
    images, labels = digits()
    return Predictor.fit(trained, images[FIT], labels[FIT], preprocess=prepare, severities=(1, 3, 5))
