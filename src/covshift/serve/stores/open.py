"""`open_store`: the store that a text names."""

from pathlib import Path

from covshift.serve.stores.base import MemoryStore, Store
from covshift.support.errors import CovshiftError


def open_store(name: str, scope: str, owner: str | None = None) -> Store:
    """Open a store by its name.

    Args:
        name: the path of an SQLite file, `redis://HOST:PORT/NUMBER`, or "memory" for states that end with the server.
        scope: what identifies the model and its policy.
        owner: what identifies this server among those that share the store; None if it is the only one.
    """
    if name == "memory":
        return MemoryStore()
    if name.startswith(("redis://", "rediss://", "unix://")):
        try:
            from covshift.serve.stores.redis import RedisStore
        except ImportError as error:
            raise CovshiftError("states in Redis need its client; install it: pip install redis") from error
        return RedisStore(name, scope, owner)
    if "://" in name:
        raise CovshiftError(f"expected a state store as a file, redis://HOST:PORT or memory, got {name!r}")
    from covshift.serve.stores.sqlite import SqliteStore

    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    return SqliteStore(path, scope, owner)
