"""Makes `python -m reachscan` the same as `reachscan`."""

from reachscan.cli.main import main

main()
