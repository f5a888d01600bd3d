"""`hitmap dashboard`: the pages, on loopback."""

from __future__ import annotations

from contextlib import ExitStack

import click

from hitmap.commands._store_option import open_client, open_reader, store_option

PORT = 8501


@click.command()
@click.option(
    "--port",
    default=PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Where to listen, on 127.0.0.1; 0 takes any free port.",
)
@click.option(
    "--tokenizer",
    metavar="PATH|approximate",
    default="approximate",
    show_default=True,
    help="A model's folder or its tokenizer.json, by which the page Advisor counts tokens.",
)
@click.option("--read-only", is_flag=True, help="Write no decisions about advice into the store.")
@store_option
def command(port: int, tokenizer: str, read_only: bool, store: str | None) -> None:
    """Show in a browser where prompt tokens came from and why the rest was computed.

    \b
      hitmap dashboard
      hitmap dashboard --port 9000 --store http://reader@clickhouse:8123/hitmap

    It listens on this machine only and sends no statistics to anybody. It reads the store, and writes there what was
    decided about advice, and nothing else. From another machine: ssh -L 8501:127.0.0.1:8501 HOST. Ctrl-C ends it.
    """
    from dashboard.serve import listen, serve
    from hitmap.prompt_tokens import body_tokens

    body_tokens(tokenizer)  # one that cannot be read is told now

    with ExitStack() as stack:
        listening = stack.enter_context(listen(port))  # a taken port is told before a store is started
        stack.enter_context(open_reader(store))  # an embedded store stays up as long as we do
        serve(
            listening,
            lambda: open_reader(store),
            lambda address: click.echo(f"hitmap dashboard: {address}; Ctrl-C ends it", err=True),
            writer=None if read_only else lambda: open_client(store),
            tokens=lambda: body_tokens(tokenizer),
        )
