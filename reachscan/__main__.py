"""`python -m reachscan` is `reachscan`."""

from reachscan.cli import main

main()
