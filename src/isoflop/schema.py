"""Plain data -> frozen dataclasses by their type hints; what does not fit is listed, all of it."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

NAME = re.compile(r"[a-z][a-z0-9_]*")
NAME_RULE = "must be lower-case letters, digits and underscores, and begin with a letter"

Problem = tuple[str, str]  # dotted key, what is wrong with it


class _Unfit:
    """What `build` returns where a value has the wrong type or a key is missing."""


UNFIT = _Unfit()


def fields_of(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def build(kind: Any, value: Any, key: str, problems: list[Problem]) -> Any:
    """`value` as `kind`; what does not fit is added to `problems` under its dotted key."""
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, key, problems)
    if origin is Literal:
        return _expect(value in typing.get_args(kind), value, key, problems, _one_of(typing.get_args(kind)))
    if origin in (typing.Union, types.UnionType):
        return _build_optional(kind, value, key, problems)
    if origin is list:
        if not isinstance(value, list):
            return _expect(False, value, key, problems, "must be a list")
        (item,) = typing.get_args(kind)
        entries = [build(item, entry, f"{key}.{i}", problems) for i, entry in enumerate(value)]
        return UNFIT if UNFIT in entries else entries
    if origin is dict:
        return _build_mapping(kind, value, key, problems)
    return _build_scalar(kind, value, key, problems)


def _build_dataclass(kind: Any, value: Any, key: str, problems: list[Problem]) -> Any:
    if not isinstance(value, Mapping):
        return _expect(False, value, key, problems, f"must be a mapping with the keys {', '.join(fields_of(kind))}")
    prefix = f"{key}." if key else ""
    hints = typing.get_type_hints(kind)
    for name in value:
        if name not in hints:
            problems.append((f"{prefix}{name}", f"is unknown{hint(str(name), hints)}"))
    built: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.name in value:
            built[field.name] = build(hints[field.name], value[field.name], f"{prefix}{field.name}", problems)
        elif field.default is dataclasses.MISSING:
            built[field.name] = _expect(False, None, f"{prefix}{field.name}", problems, "is missing")
    if UNFIT in built.values():
        return UNFIT
    made = kind(**built)
    for name, rule in made.problems() if hasattr(made, "problems") else ():
        problems.append((f"{prefix}{name}".rstrip("."), rule))
    return made


def _build_optional(kind: Any, value: Any, key: str, problems: list[Problem]) -> Any:
    if value is None:
        return None
    (inner,) = [option for option in typing.get_args(kind) if option is not type(None)]
    return build(inner, value, key, problems)


def _build_mapping(kind: Any, value: Any, key: str, problems: list[Problem]) -> Any:
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        return _expect(False, value, key, problems, "must be a mapping")
    _, item = typing.get_args(kind)
    built: dict[str, Any] = {}
    for name, entry in value.items():
        if not isinstance(name, str):
            built[str(name)] = _expect(False, entry, f"{key}.{name}", problems, f"is no valid name: it {NAME_RULE}")
        elif item is Any or item is object:
            built[name] = entry
        else:
            # `base:` with nothing behind it is an arm that changes nothing.
            built[name] = build(item, {} if entry is None else entry, f"{key}.{name}", problems)
    return UNFIT if UNFIT in built.values() else built


def _build_scalar(kind: Any, value: Any, key: str, problems: list[Problem]) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in (Any, object):
        return value
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if fits and kind is float and not math.isfinite(value):
        return _expect(False, value, key, problems, "must be a finite number")
    return _expect(fits, value, key, problems, f"must be {names[kind]}")


def _one_of(options: tuple[Any, ...]) -> str:
    return f"must be one of {', '.join(map(str, options))}"


def _expect(fits: bool, value: Any, key: str, problems: list[Problem], rule: str) -> Any:
    if not fits:
        problems.append((key, rule))
    return value if fits else UNFIT


def plain(value: Any) -> Any:
    """Dataclasses, tuples and mappings as plain data for YAML, JSON and hashing."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def pairs(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings with their dotted keys. Keys may be dotted already."""
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            yield from pairs(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def flatten(nested: Mapping[str, Any]) -> dict[str, Any]:
    """`{"model": {"n_head": 2}}` and `{"model.n_head": 2}` both become the latter."""
    return dict(pairs(nested))


def hint(key: str, known: Iterable[str]) -> str:
    """ "; did you mean ...?" where a known key is close, else nothing."""
    close = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
