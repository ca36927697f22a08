"""`Lease`: what keeps a second server off the cameras that a first one has in Redis."""

import threading
import time
from contextlib import suppress

import redis

SECONDS = 4.0
"""How long a lease lasts after its last renewal: a server that was killed can be replaced after this."""

_PERIOD = 1.0  # seconds between two renewals
_LOOK = 0.2  # seconds between two looks at a lease of somebody else

# Takes a lease that is free, or renews that of the same holder; returns whether the holder has it now.
_TAKE = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"


class Lease:
    """A key of Redis that one holder has, and that expires by itself when it is not renewed.

    Args:
        client: the connection to Redis.
        key: the key.
        holder: what identifies the holder.
    """

    def __init__(self, client: redis.Redis, key: str, holder: str) -> None:
        self._client, self._key, self._holder = client, key, holder
        self._lost = False  # for good: what the next holder has written since must not be overwritten
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="covshift-lease", daemon=True)

    def acquire(self) -> bool:
        """Take the lease and keep it until `release`; return False if somebody else renews it.

        One that nobody renews any more, as after `kill -9`, is waited for.
        """
        left, until = float("inf"), time.monotonic() + 2 * SECONDS
        while not self.hold():
            now = self._client.pttl(self._key)
            if now > left or time.monotonic() > until:  # only a renewal makes it last longer
                return False
            left = now
            time.sleep(_LOOK)
        self._thread.start()
        return True

    def keep(self) -> bool:
        """Renew the lease; return False, now and ever after, if somebody else has had it since."""
        self._lost = self._lost or not self.hold()
        return not self._lost

    def hold(self) -> bool:
        """Take or renew the lease; return False if somebody else has it."""
        return bool(self._client.eval(_TAKE, 1, self._key, self._holder, int(1e3 * SECONDS)))

    def release(self) -> None:
        """Give the lease back."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._client.eval(_RELEASE, 1, self._key, self._holder)

    def _renew(self) -> None:
        while not self._stop.wait(_PERIOD):
            with suppress(redis.RedisError, OSError):  # out of reach: the next write says so
                self.keep()
