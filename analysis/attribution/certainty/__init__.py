"""How sure a change is: resampling, the gate, placebo windows, and since when."""
