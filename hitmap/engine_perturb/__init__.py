"""The perturbation check: how much a quantile really moves when one layer gets slower, beside what is predicted.

model: what is found, run: delays switched on and off in turn, measure: what the requests of each turn say, view.
"""
