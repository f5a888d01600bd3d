"""How rows of SGLang's tables are written: both prefixes of a name, and the ranks that repeat each other."""

from __future__ import annotations

from collector.metric import Alias, Metric, Origin, Trap, row
from collector.ranks import Ranks

# Tensor- and pipeline-parallel ranks work in step; data-parallel ranks have requests of their own. With DP attention
# the TP ranks are spread over the DP ranks, so that the lowest TP rank of a DP rank is not 0.
COPIES = Ranks(copies=("pp_rank", "tp_rank"), apart=("dp_rank",))
# With --enable-priority-scheduling the total stands under the empty priority and its parts beside it.
PARTS = Ranks(copies=("priority", "pp_rank", "tp_rank"), apart=("dp_rank",))


def both(
    name: str,
    kind: str,
    unit: str,
    text: str,
    *aliases: str | tuple[str, str],
    traps: tuple[Trap, ...] = (),
    ranks: Ranks | None = None,
    origin: Origin | None = None,
) -> Metric:
    """A row whose names start with `sglang:`, as the server says them, or with `sglang_`.

    The latter is what Prometheus installations that turn colons into underscores pass on, and what Dynamo's SGLang
    worker exposed until January 2026 (sglang PR 15758, inference-perf issue 600, dynamo PR 5701).
    """
    colon, under = (
        row(prefix, name, kind, unit, text, *aliases, traps=traps, ranks=ranks, origin=origin)
        for prefix in ("sglang:", "sglang_")
    )
    pairs = zip(colon.aliases, under.aliases, strict=True)
    found = tuple(Alias(raw, versions) for pair in pairs for raw, versions in pair)
    return Metric(name, kind, unit, text, found, traps, ranks, origin)
