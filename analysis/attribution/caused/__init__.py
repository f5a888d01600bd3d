"""What caused a change: the real arrivals replayed by the twin with every subset of the causes as in B."""
