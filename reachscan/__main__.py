"""`python -m reachscan` is `reachscan`."""

from reachscan.cli.main import main

main()
