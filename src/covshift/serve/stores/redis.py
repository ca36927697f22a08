"""States of cameras in Redis, which the replicas of a server share."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from covshift.serve.stores.base import StoreError
from covshift.serve.stores.lease import Lease
from covshift.support.errors import CovshiftError

_PATIENCE = 2.0  # seconds

# Writes or removes those cameras only whose owner is the first argument, in one step. One without an owner, which a
# Redis that has lost its data knows nothing of, gets this one.
_OWNED = """
for i = 3, #ARGV, ARGV[2] + 1 do
    redis.call('HSETNX', KEYS[2], ARGV[i], ARGV[1])
    if redis.call('HGET', KEYS[2], ARGV[i]) == ARGV[1] then
        if ARGV[2] == '1' then redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
        else redis.call('HDEL', KEYS[1], ARGV[i]) end
    end
end
"""


class RedisStore:
    """States in a hash of Redis, one for each model.

    A Redis that comes back without its data, as one that keeps them in memory only, is noticed by a mark that this
    server has left there: the next write is then an error, after which a server writes all that it has in memory.

    Args:
        url: where Redis is, such as redis://localhost:6379/0.
        scope: what identifies the model and its policy.
        owner: what identifies this server among those that share the states; None if it is the only one.
    """

    def __init__(self, url: str, scope: str, owner: str | None = None) -> None:
        self._key, self._owner = f"covshift:{scope}", owner
        self.shared = owner is not None
        self._owners, self._marks, self._mark = f"{self._key}:owners", f"{self._key}:servers", uuid.uuid4().hex
        connecting = {} if url.startswith("unix://") else {"socket_connect_timeout": _PATIENCE}
        with _reported():
            self._client = redis.Redis.from_url(
                url,
                socket_timeout=_PATIENCE,
                **connecting,
                retry=Retry(NoBackoff(), 1),  # at once, on a new connection; a server tries again by itself later
            )
            # Servers that share the states have an owner each; any other has them for itself.
            self._lease = Lease(self._client, f"{self._key}:lease", self._mark) if owner is None else None
            is_free = self._lease is None or self._lease.acquire()
            if is_free:
                self._begin()
        if not is_free:
            self._client.close()
            raise CovshiftError(
                "expected a Redis database for the cameras of one server, got one where another server of this model "
                "keeps its own; choose another database, such as redis://HOST:PORT/1, or stop that server"
            )

    def _begin(self) -> None:
        try:
            self._leave_mark()
        except BaseException:
            self.close()  # which releases the lease
            raise

    def claim(self, name: str) -> None:
        """Take a camera over from the server that had it."""
        if self._owner is not None:
            with _reported():
                self._client.hset(self._owners, name, self._owner)

    def owns(self, name: str) -> bool:
        """Return whether no other server has claimed a camera since."""
        if self._owner is None:
            return True
        with _reported():
            owner: bytes | None = self._client.hget(self._owners, name)
            return owner is None or owner.decode() == self._owner

    def names(self) -> list[str]:
        """Return the names of all cameras."""
        with _reported():
            return [name.decode() for name in self._client.hkeys(self._key)]

    def get(self, name: str) -> bytes | None:
        """Return the state of a camera; None if there is none."""
        with _reported():
            state: bytes | None = self._client.hget(self._key, name)
            return state

    def put(self, states: Mapping[str, bytes]) -> None:
        """Write the states of some cameras, in one command."""
        if not states:
            return
        with _reported():
            self._check_lease()
            if self._leave_mark():
                raise StoreError("Redis has lost its data")
            if self._owner is None:
                self._client.hset(self._key, mapping=dict(states))
            else:
                self._change_owned(1, [part for item in states.items() for part in item])

    def delete(self, names: Iterable[str]) -> None:
        """Remove some cameras."""
        fields = list(names)
        if not fields:
            return
        with _reported():
            self._check_lease()
            if self._owner is None:
                self._client.hdel(self._key, *fields)
            else:
                self._change_owned(0, fields)

    def _change_owned(self, values: int, fields: Sequence[str | bytes]) -> None:
        """Change the cameras of this server; `fields` are their names, each with so many values after it."""
        self._client.eval(_OWNED, 2, self._key, self._owners, self._owner, values, *fields)

    def _check_lease(self) -> None:
        """Raise a `StoreError` if another server has taken over while this one could not reach Redis."""
        if self._lease is not None and not self._lease.keep():
            raise StoreError("another server of this model has taken over the cameras in Redis; stop one of the two")

    def _leave_mark(self) -> bool:
        """Mark that this server is here, and return whether it had not been marked before."""
        return bool(self._client.hsetnx(self._marks, self._mark, 1))

    def close(self) -> None:
        """Remove the mark, and close the connections."""
        with suppress(redis.RedisError, OSError):
            if self._lease is not None:
                self._lease.release()
            self._client.hdel(self._marks, self._mark)
        self._client.close()


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except (redis.RedisError, OSError, ValueError) as error:
        problem = str(error).rstrip(".") or type(error).__name__
        raise StoreError(f"Redis cannot be used: {problem}; check that it runs, and its address") from error
