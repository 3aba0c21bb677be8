"""``python -m gateway`` is ``spillway``."""

from gateway.cli import main

main()
