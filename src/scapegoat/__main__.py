"""`python -m scapegoat`."""

from scapegoat.cli import main

main()
