"""``python -m glowplug``: the command line."""

from .cli import main

main()
