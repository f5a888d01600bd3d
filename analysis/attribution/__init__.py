"""What moved a quantile between two sets of requests: what it is made of, where it shows, what caused it."""
