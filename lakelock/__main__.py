"""``python -m lakelock``: the command ``lakelock``."""

import lakelock  # noqa: F401  (says which folder hides one of its packages)
from connector.cli import main

main()
