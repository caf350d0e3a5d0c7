"""Which modules of the package a module imports, read from the source without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def modules(src: Path) -> dict[str, Path]:
    """Dotted name -> file of every module under `src`."""
    found = {}
    for path in sorted(src.rglob("*.py")):
        parts = path.relative_to(src).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """Modules of `known` that a file imports anywhere, `if TYPE_CHECKING` aside."""
    found = set()
    for node in _nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports are not followed"
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        found |= {name for name in names if name in known}
    return found


def closure(start: str, known: dict[str, Path], without: set[str] = frozenset()) -> set[str]:  # type: ignore[assignment]
    """All modules that `start` reaches; those in `without`, and what only they reach, are left out.

    A package's `__init__` counts with each of its modules, but the package's other modules do not.
    """
    todo, reached = [start], set()
    while todo:
        name = todo.pop()
        if name in reached or any(name == w or name.startswith(f"{w}.") for w in without):
            continue
        reached.add(name)
        parents = [name.rsplit(".", i)[0] for i in range(1, name.count(".") + 1)]
        todo += [*imported(known[name], known), *(p for p in parents if p in known)]
    return reached


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _nodes(node)
