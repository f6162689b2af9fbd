"""One scan beside another: what counts, what is known, what grew."""
