"""The command line."""

import os

# Before numpy is loaded. Its BLAS lets threads wait for work by turning in circles: of products of a few columns, which
# are all there are here, they take twice the CPU and no less time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
