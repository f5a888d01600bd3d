"""`python -m hitmap` is the same as `hitmap`."""

from hitmap.cli import main

main()
