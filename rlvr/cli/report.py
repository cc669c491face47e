"""`rlvr report RUN ...`: one HTML page about runs, written to a file, or served to this machine's browser while they go on.

`rlvr/report` makes the page.
"""

from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rlvr.cli.parser import Parser
from rlvr.cli.runs import RUNS, find_runs
from rlvr.errors import UserError

REFRESH_S = 15


def report_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="rlvr report", description="Curves, diagnosis, samples and settings of runs, in one HTML page."
    )
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help=f"folders of runs (--save_path); several are overlaid; else the newest in {RUNS}/",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="where to write the page; report.html in the only run's folder, or here"
    )
    parser.add_argument(
        "--serve", action="store_true", help="show the page at http://127.0.0.1:PORT instead, renewed as runs go on"
    )
    parser.add_argument("--port", type=int, default=8787, metavar="N", help="port of --serve; 0 is any free one")
    return parser


def report_command(argv: list[str]) -> None:
    """Write the page, or serve it until Ctrl-C.

    Raises:
        UserError: a folder without a run, a file that can't be written, a port in use, or plotly missing.
    """
    a = report_parser().parse_args(argv)
    from rlvr.report.page import render
    from rlvr.report.runs import read_runs

    folders = a.runs or [str(find_runs(Path(RUNS))[-1])]
    if a.serve and a.output:
        raise UserError("--output and --serve: the page is either written or served; give one of them")
    if a.serve:
        render(read_runs(folders))  # a mistake is told here and not in the browser
        serve(folders, a.port)
        return
    path = Path(a.output or (Path(folders[0]) / "report.html" if len(folders) == 1 else "report.html"))
    page = render(read_runs(folders))
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--output {path}: {error.strerror}") from None
    print(f"written: {path} ({len(page) / 1e6:.1f} MB; open it in a browser)")


def serve(folders: list[str], port: int) -> None:
    """Serve the page on this machine only, made anew at each request, until Ctrl-C."""
    try:
        server = make_server(folders, port)
    except OSError as error:
        raise UserError(f"--port {port}: {error.strerror}; give another, or 0 for any free one") from None
    print(f"serving http://127.0.0.1:{server.server_address[1]} (Ctrl-C ends it)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()


def make_server(folders: list[str], port: int) -> ThreadingHTTPServer:
    """A server of one page."""
    return ThreadingHTTPServer(("127.0.0.1", port), partial(_PageHandler, folders))


class _PageHandler(BaseHTTPRequestHandler):
    def __init__(self, folders: list[str], *arguments: object) -> None:
        self.folders = folders
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        from rlvr.report.page import render
        from rlvr.report.runs import read_runs

        # A page of elsewhere may have its own name lead to this machine, and so read what is here.
        if self.headers.get("Host", "").rpartition(":")[0] not in ("127.0.0.1", "localhost"):
            self.send_error(403, "this address is not mine")
            return
        if self.path == "/alive":  # asked by the page before it comes anew
            self.send_response(204)
            self.end_headers()
            return
        if self.path not in ("/", "/index.html"):
            self.send_error(404)
            return
        try:
            page = render(read_runs(self.folders), REFRESH_S)
        except UserError as error:  # the folder went away
            self.send_error(503, "no report", str(error))
            return
        body = page.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing of requests."""
