"""Where the store lies, and how its sqlite database is made."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from filelock import FileLock

LOCK_S = 60.0  # making a database takes a few seconds; nobody waits longer than this for someone else's


def store_uri(root: Path) -> str:
    """`MLFLOW_TRACKING_URI` where it is set, else sqlite in the main checkout `root`; always absolute."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root.resolve() / 'mlflow.db'}"
    database = sqlite_file(uri)
    if database is None or database.is_absolute():
        return uri
    # A relative path would mean another file in every temporary copy that DVC makes of the checkout.
    return uri.replace(f":///{database}", f":///{(root / database).resolve()}", 1)


def sqlite_file(uri: str) -> Path | None:
    """The file of a sqlite URI; None for a server or a database without a file."""
    scheme, _, rest = uri.partition(":///")
    if scheme.partition("+")[0] != "sqlite" or not rest or rest == ":memory:":
        return None
    return Path(rest.partition("?")[0])


def quiet() -> None:
    """Set what mlflow reads at import: no telemetry, a quiet terminal, and giving up soon.

    Belongs in the main thread, because changing the environment while other threads read it is not safe.
    The limits stand behind whatever the user has set.
    """
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)


def ensure_store(root: Path) -> str:
    """Make the sqlite database if there is none, and return the store's URI.

    Two processes that make it together, or one that is killed while it does, would leave it unusable: it is
    made under a lock, in a temporary file that is renamed when it is complete.
    """
    uri = store_uri(root)
    database = sqlite_file(uri)
    if database is None or database.exists():
        return uri
    database.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{database}.lock", timeout=LOCK_S):
        if not database.exists():
            _create(database, root)
    return uri


def _create(database: Path, root: Path) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy import Engine, event

    def unsynced(connection: Any, _record: object) -> None:
        connection.execute("pragma synchronous = off")

    # One fixed name is enough under the lock, and what a killed process left is found again.
    unfinished = database.with_name(f"{database.name}.new")
    for leftover in (unfinished, unfinished.with_name(f"{unfinished.name}-journal")):
        leftover.unlink(missing_ok=True)
    # Its tables come from some forty migrations. Nothing is lost where they do not reach the disk one by one: the file
    # is put there as a whole before it gets its name.
    event.listen(Engine, "connect", unsynced)
    try:
        store = SqlAlchemyStore(f"sqlite:///{unfinished}", artifacts(root).as_uri())  # type: ignore[no-untyped-call]
        store.engine.dispose()
    finally:
        event.remove(Engine, "connect", unsynced)
    with unfinished.open("rb") as handle:
        os.fsync(handle.fileno())
    unfinished.replace(database)


def artifacts(root: Path) -> Path:
    """Where a store without a server keeps artifacts."""
    return root / "mlartifacts"
