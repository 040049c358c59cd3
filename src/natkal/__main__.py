"""`python -m natkal` is the command `natkal`."""

from natkal.cli import main

main()
