"""What Spark says where a store lets the user not see something."""

from __future__ import annotations

import re

_DENIED = re.compile(r"AccessDenied|Access Denied|Permission denied|PERMISSION_DENIED|Forbidden|Status Code: 403")


def denied(error: Exception) -> bool:
    """Whether a store has refused to show what is asked for. Any other error says nothing of what is there."""
    return isinstance(error, PermissionError) or _DENIED.search(str(error)) is not None
