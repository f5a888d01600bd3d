"""What moved a quantile between two sets of requests: what it is made of, where it shows, what caused it.

`build` is the front door and `model` what it hands out. shows/ swaps mechanisms in the rows, caused/ replays them by
the scheduler's twin; both stand on certainty/, the intervals and the gate, and know nothing of each other.
"""
