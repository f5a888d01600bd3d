"""Memory, caches, links and pipes of NVIDIA GPUs.

sensor   GpuSensor: all GPUs and MIG instances of this host, through NVML and GPM
bursts   CuptiSensor: L1/TEX, L2, DRAM and tensor counters, in short bursts
support  what this host supports

table    which number of NVML is which metric
nvml     the binding, and every refusal as a reason
device   one GPU or MIG instance
samples  GPM: what happened between two samples
totals   counters that never go back
counters which counter of CUPTI is which metric, and what a burst says of a kernel
cupti    the collector on CUPTI itself
"""
