"""`python -m natkal` is the command `natkal`."""

from natkal.app.cli import main

main()
