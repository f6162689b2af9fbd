"""The command line: words in, reports and an exit status out."""
