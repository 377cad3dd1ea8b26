"""``spindown dashboard``: serve the dashboards, or write one as a file."""

import webbrowser
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from spindown.cli import option
from spindown.cli.render.canvas import check_page
from spindown.cli.render.line import noted_if_slow, print_aside, print_line
from spindown.cli.session import open_session
from spindown.error import BadInput
from spindown.installed import require


def dashboard(  # noqa: PLR0913 - its options
    workload: Annotated[
        str | None, typer.Argument(help="Begin with this workload; else with the deployment.")
    ] = None,
    *,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    since: Annotated[
        str | None, typer.Option(metavar="12h", help="How far back; else as the dashboard says.")
    ] = None,
    every: Annotated[
        int, typer.Option(min=5, max=3600, help="Seconds from one page to the next.")
    ] = 60,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    html: Annotated[
        Path | None, typer.Option(help="Write the page into this file once, and end.")
    ] = None,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
) -> None:
    """Show the deployed dashboards as pages here, with jobs and what they print."""
    require("plot")
    with noted_if_slow("loading the plotting library ..."):
        from spindown.cli.dashboard.page import (  # noqa: PLC0415 - loads the library that plots
            Looked,
            overview,
            workload_page,
        )
        from spindown.cli.dashboard.server import (  # noqa: PLC0415 - likewise
            Site,
            make_server,
            parse_span,
        )

    if html is not None:
        if show:
            raise BadInput("--open", "with --html", "give one of them")
        check_page(html)
    span = None if since is None else parse_span(since)
    session = open_session(config, deployment=deployment, local=local)
    if workload is not None:
        session.workload(workload)
    if html is not None:
        looked = Looked(span=span)
        with noted_if_slow("reading the metrics and drawing the page ..."):
            page = (
                overview(session, looked)
                if workload is None
                else workload_page(session, workload, looked)
            )
        html.write_text(page, encoding="utf-8")
        print_line(f"Wrote {html}")
        return
    site = Site(session=session, every=timedelta(seconds=every), span=span)
    with make_server(site, port) as server:
        path = site.root if workload is None else f"{site.root}w/{workload}"
        address = f"http://127.0.0.1:{server.server_address[1]}{path}"
        print(address, flush=True)
        print_aside("Ctrl-C ends it. Who has the address sees all that is on these pages.")
        if show and not webbrowser.open(address):
            print_aside("no browser was found: open the address yourself")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
