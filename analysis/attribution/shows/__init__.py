"""Where a change shows: mechanisms swapped one by one, from the requests alone."""
