"""The benchmark: the error of a model under corruptions, without and with adaptation."""

from covshift.bench.methods import Method, register
from covshift.bench.results.frame import frame
from covshift.bench.results.store import Store
from covshift.bench.run import run
from covshift.bench.settings import Settings

__all__ = ["Method", "Settings", "Store", "frame", "register", "run"]
