"""The templates, and how they are loaded."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def environment(*, html: bool = False) -> Environment:
    """Templates of this folder; a name that is not there is an error. HTML escapes what is not marked as safe."""
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=html,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
