"""The one exception for mistakes that the user can mend."""

from __future__ import annotations


class IsoflopError(ValueError):
    """Names the key or file, the value found, the rule it breaks and the way out.

    Stage entry points print it without a traceback; anything else is a bug and keeps its traceback.
    """
