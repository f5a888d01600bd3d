"""The scheduler twin: a server's step-time law fitted from its requests, and a replay of any requests under any law.

fit(side, told)                 fit.py       -> Fit; NoTwin says why there is none
workload(side, fit)             workload.py  -> Workload
replay(workload, law, limits)   simulate.py  -> Replay;  replay_all(cases, of) for many at once
fidelity(side, fit)             fidelity.py  -> list[Fidelity]
"""
