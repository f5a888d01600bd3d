"""One device and the one thread that drives it.

engine      the door: submit, abort, finished; owns the thread
stepper     one step, from what is queued to what is told
scheduler   who gets the device next; knows no tensor
runner      runs the model over a plan and samples
sequence    a request while the core has it
"""

from engine.core.engine import Engine

__all__ = ["Engine"]
