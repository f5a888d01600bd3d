"""`hitmap report`: two sets of requests compared; reader -> builder -> one dataclass -> pure reporters."""
