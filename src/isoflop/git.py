"""The few questions asked of git. Every answer is None where git or the repository is absent."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(*arguments: str) -> str | None:
    """Output of a git command, or None where it fails or the working directory is not a repository's root.

    A copy without history that lies inside another repository must not take that one's commits for its own.
    """
    if not Path(".git").exists():
        return None
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, check=False)
    except OSError:  # git is not installed
        return None
    return done.stdout.decode("utf-8", errors="replace") if done.returncode == 0 else None


def revision(name: str = "HEAD") -> str | None:
    """Full hash of a commit."""
    found = git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return found.strip() if found else None


def history_of(*paths: Path) -> list[tuple[str, str]]:
    """(hash, ISO time) of the commits that touched any of the files, oldest first; none without git."""
    names = [path.as_posix() for path in paths]
    found = git("log", "--reverse", "--format=%H %cI", "--", *names) or ""
    return [(line.split()[0], line.split()[1]) for line in found.splitlines()]


def is_dirty(*paths: str) -> bool | None:
    """Whether tracked or new files under `paths` differ from the last commit."""
    found = git("status", "--porcelain", "--", *paths)
    return None if found is None else bool(found.strip())


def file_at(rev: str, path: Path) -> str | None:
    """Content of a file, named from the working directory, as committed in `rev`."""
    return git("show", f"{rev}:./{path.as_posix()}")
