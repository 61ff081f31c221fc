"""``python -m connector``: the command ``lakelock``."""

from connector.cli.app import main

main()
