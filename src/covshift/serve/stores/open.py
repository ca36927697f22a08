"""`open_store`: the store that a text names."""

from covshift.serve.stores.base import MemoryStore, Store
from covshift.support.checks import check_kind, check_path
from covshift.support.errors import CovshiftError


def open_store(name: str, scope: str, owner: str | None = None) -> Store:
    """Open a store by its name.

    Args:
        name: the path of an SQLite file, `redis://HOST:PORT/NUMBER`, or "memory" for states that end with the server.
        scope: what identifies the model and its policy.
        owner: what identifies this server among those that share the store; None if it is the only one.
    """
    check_kind(name, str, "state", "a file, redis://HOST:PORT or memory")
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

    path = check_path(name, "state")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CovshiftError(f"cannot make the folder of {path}: {error.strerror or error}") from error
    return SqliteStore(path, scope, owner)
