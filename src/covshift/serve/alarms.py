"""Alarms with a false-alarm rate that is set: a sequential test for each camera, and hysteresis.

Now and then a camera is looked at: is its shift, or the lower end of its predicted error, beyond the limit? Looks are
as far apart as the camera remembers images, since closer ones would see the same images twice. A healthy camera may be
beyond the limit by chance; it is taken to be so at no more than a share `CHANCE` of its looks, whatever came before.

The evidence is a Shiryaev–Roberts statistic with a bet in place of a likelihood ratio: at each look, (evidence +
seconds since the last look) × gain, where the mean gain of a healthy camera is 1 at most. Evidence − time is then a
supermartingale, so that the mean time until the evidence of a healthy camera reaches a value T is at least T seconds:
for every T, without any model of the shift, and however often the camera sends. An all-clear needs the same kind of
evidence against the alarm, below a lower limit.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from covshift.serve.events import Answered
from covshift.support.errors import CovshiftError

CHANCE = 0.2
"""Share of its looks at which a healthy camera may be beyond the limit, whatever came before."""

BET = 0.8
"""Share of the evidence that is lost by a look within the limit."""

BACK = 0.8
"""Share of the limit below which a camera counts as recovered."""

DAY = 86_400.0
_LEAST = 50  # images between two looks
_SETTLED = 16  # images after a reset before a look; a camera that is reset again and again is looked at all the same
_LONGEST = 3600.0  # seconds that the time between two looks counts for, at most
_CLEAR = 30  # an all-clear may be false so many times as often as an alarm
_CAMERAS = 10_000

Kind = Literal["shift", "error"]


class Evidence:
    """Evidence that a camera is beyond a limit, or within it.

    Args:
        between: the mean time between two false alarms, in seconds, at least.

    >>> evidence = Evidence(between=1000)
    >>> [evidence.add(10, True) for look in range(4)]
    [False, False, False, True]
    """

    def __init__(self, between: float) -> None:
        self.between = between
        self._sum = 0.0

    def add(self, seconds: float, against: bool) -> bool:
        """Add a look, and return whether the evidence suffices.

        Args:
            seconds: the time since the last look.
            against: whether the look speaks against what is assumed.
        """
        gain = 1 + BET * (1 - CHANCE) / CHANCE if against else 1 - BET
        self._sum = (self._sum + seconds) * gain
        return against and self._sum >= self.between  # after a long pause, the time alone may reach it


@dataclass(frozen=True, kw_only=True)
class Rules:
    """When alarms are raised.

    Attributes:
        shift: limit of the shift of a camera, in standard deviations; None for no such alarm.
        error: limit of its predicted error, from 0 to 1; None for no such alarm. An error that cannot be told counts
            as beyond it.
        days: mean number of days between two false alarms of a camera, at least.
    """

    shift: float | None = None
    error: float | None = None
    days: float = 30.0

    def __post_init__(self) -> None:
        for name, limit in self.limits.items():
            if not limit > 0:
                raise CovshiftError(f"expected the limit of the {name} to be above 0, got {limit}")
        if not self.days > 0:
            raise CovshiftError(f"expected the days between false alarms to be above 0, got {self.days}")

    @property
    def limits(self) -> dict[Kind, float]:
        """The limits that were set."""
        both: dict[Kind, float | None] = {"shift": self.shift, "error": self.error}
        return {kind: limit for kind, limit in both.items() if limit is not None}


@dataclass(frozen=True)
class Alarm:
    """An alarm that is raised, or cleared.

    Attributes:
        camera: the name of the camera.
        raised: whether it is raised.
        kind: what is beyond its limit: "shift" or "error".
        value: the shift or predicted error at the last look; None if it cannot be told.
        limit: the limit.
        time: when it happened, in seconds since 1970.
    """

    camera: str
    raised: bool
    kind: Kind
    value: float | None
    limit: float
    time: float

    @property
    def text(self) -> str:
        """A sentence for people."""
        value = "cannot be told" if self.value is None else f"is {self.value:.2g}"
        what = "the shift" if self.kind == "shift" else "the predicted error"
        if self.raised:
            return f"{self.camera}: {what} {value}; it is beyond the limit of {self.limit:g}"
        return f"{self.camera}: {what} {value}; it is within the limit of {self.limit:g} again"


class _Watched:
    """One camera under one rule."""

    def __init__(self, kind: Kind, limit: float, between: float) -> None:
        self._kind, self._limit, self._between = kind, limit, between
        self.raised = False
        self._evidence = Evidence(between)

    def look(self, event: Answered, seconds: float) -> Alarm | None:
        """Look at a camera, and return the alarm if this raises or clears one."""
        value, beyond, within = self._judge(event)
        if not self._evidence.add(seconds, within if self.raised else beyond):
            return None
        self.raised = not self.raised
        self._evidence = Evidence(self._between / _CLEAR if self.raised else self._between)
        return Alarm(event.camera, self.raised, self._kind, value, self._limit, event.time)

    def _judge(self, event: Answered) -> tuple[float | None, bool, bool]:
        """Return the value, whether it is beyond the limit, and whether it is well within it."""
        if self._kind == "shift":
            shift = event.shift or 0.0
            return shift, shift > self._limit, shift < BACK * self._limit
        if event.predicted is None:
            return None, True, False
        error, low = event.predicted.error, event.predicted.low
        return error, low > self._limit, error < BACK * self._limit


class _Camera:
    """One camera: when it is to be looked at, and its rules."""

    def __init__(self, rules: Rules, now: float) -> None:
        self._watched = [_Watched(kind, limit, rules.days * DAY) for kind, limit in rules.limits.items()]
        self._images = self._since_reset = 0
        self._apart = float(_LEAST)
        self._last = now

    def note(self, event: Answered) -> list[Alarm]:
        """Count the images of an event, and look at the camera if it is time."""
        if event.done == "frozen":  # nothing new is seen
            self._last = event.time
            return []
        self._since_reset = 0 if event.reset else self._since_reset + event.images
        self._images += event.images
        if event.reset:
            self._apart = float(_LEAST)
        if self._images < self._apart or self._since_reset < _SETTLED:
            return []
        seconds = min(max(event.time - self._last, 0.0), _LONGEST)
        self._images, self._apart, self._last = 0, max(float(_LEAST), event.remembered), event.time
        return [alarm for each in self._watched if (alarm := each.look(event, seconds)) is not None]


class Alarms:
    """Watches all cameras, and calls back when an alarm is raised or cleared.

    Args:
        rules: when alarms are raised.
        tell: called with each alarm, in the thread of the event loop; must return at once.
    """

    def __init__(self, rules: Rules, tell: Callable[[Alarm], object]) -> None:
        self._rules, self._tell = rules, tell
        self._cameras: OrderedDict[str, _Camera] = OrderedDict()

    def note(self, event: Answered) -> None:
        """Take an event into account."""
        if not event.camera:
            return
        camera = self._cameras.get(event.camera)
        if camera is None:
            camera = self._cameras[event.camera] = _Camera(self._rules, event.time)
        self._cameras.move_to_end(event.camera)
        if len(self._cameras) > _CAMERAS:
            self._cameras.popitem(last=False)
        for alarm in camera.note(event):
            self._tell(alarm)

    def forget(self, camera: str) -> None:
        """Forget a camera and its alarms."""
        self._cameras.pop(camera, None)
