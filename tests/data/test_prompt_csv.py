"""Prompts from a CSV file here or on a server; and every way in which there are none."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rlvr.data import readers as prompt_csv
from rlvr.data.readers import read_prompt_csv
from rlvr.errors import UserError

CSV = 'prompt,category\n"Say ""hi"", please",greeting\nCount to three,sums\n'


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/missing.csv":
            self.send_error(404)
        elif self.path == "/away.csv":
            self.send_response(302)
            self.send_header("Location", "file:///etc/hostname")
            self.end_headers()
        elif self.path == "/silent.csv":
            self.server.release.wait(10)
        else:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(CSV.encode())

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.release = threading.Event()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.release.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("kind", ["path", "file", "http"])
def test_a_path_or_an_address(kind, address, tmp_path) -> None:
    path = tmp_path / "my prompts.csv"
    path.write_text(CSV)
    source = {"path": str(path), "file": path.as_uri(), "http": f"{address}/prompts.csv"}[kind]
    problems = read_prompt_csv(source)
    assert [p.question for p in problems] == ['Say "hi", please', "Count to three"]
    assert [p.answer for p in problems] == [None, None]
    assert [p.columns for p in problems] == [{"category": "greeting"}, {"category": "sums"}]


def test_answers_are_read_where_there_are_any(tmp_path) -> None:
    path = tmp_path / "sums.csv"
    path.write_text("prompt,answer\n1+1,2\n1+1,2\n")
    assert [(p.question, p.answer) for p in read_prompt_csv(str(path))] == [("1+1", "2")] * 2
    assert len({p.id for p in read_prompt_csv(str(path))}) == 2
    assert len(read_prompt_csv(str(path), limit=1)) == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.csv", "404"),
        ("away.csv", "302"),
        ("silent.csv", "timed out"),
    ],
)
def test_a_server_that_gives_nothing(name, said, address, monkeypatch) -> None:
    monkeypatch.setattr(prompt_csv, "TIMEOUT_S", 0.3)
    with pytest.raises(UserError, match=said) as error:
        read_prompt_csv(f"{address}/{name}")
    assert name in str(error.value)


def test_too_large_a_file_is_not_fetched(address, monkeypatch) -> None:
    monkeypatch.setattr(prompt_csv, "MAX_BYTES", 10)
    with pytest.raises(UserError, match="larger than"):
        read_prompt_csv(f"{address}/prompts.csv")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("question,answer\n1+1,2\n", "no column 'prompt'; the columns are question, answer"),
        ("prompt\n", "no rows"),
        ("prompt,answer\n1+1\n", "1 cells where the header has 2"),
    ],
)
def test_files_that_hold_no_prompts(text, said, tmp_path) -> None:
    path = tmp_path / "prompts.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        read_prompt_csv(str(path))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("ftp://host/prompts.csv", "not ftp://"),
        ("file://elsewhere/prompts.csv", "of this machine"),
        ("no/such/file.csv", "file.csv"),
        ("http://127.0.0.1:9/prompts.csv", "can't be fetched"),
    ],
)
def test_addresses_that_can_not_be(source, said) -> None:
    with pytest.raises(UserError, match=said):
        read_prompt_csv(source)


def test_another_kind_of_file(tmp_path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "1+1"}\n')
    with pytest.raises(UserError, match="must end in .csv"):
        read_prompt_csv(str(path))
