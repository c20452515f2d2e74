import queue
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from hummock.errors import ObjectStoreError
from hummock.object_store.http import PART_BYTES, HttpClient
from tests.support.drivers.forks import held_by_a_thread, outcomes_in_a_child


@contextmanager
def scripted_server(*answers, hold=False):
    """Yields a URL and its requests; the n-th one gets the n-th answer verbatim, on one connection while it lasts."""
    listener = socket.create_server(("127.0.0.1", 0))
    done, requests = threading.Event(), []

    def serve():
        left = list(answers)
        while left:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as stream:
                while left and (head := read_head(stream)):
                    length = [int(line.split(b":")[1]) for line in head if line.lower().startswith(b"content-length")]
                    requests.append((head[0], len(stream.read(length[0])) if length else 0))
                    answer = left.pop(0)
                    connection.sendall(answer)
                    if b"close" in answer or not answer.endswith(b"."):
                        break
                if hold:
                    done.wait(30)

    def read_head(stream):
        lines = []
        while (line := stream.readline()) not in (b"", b"\r\n"):
            lines.append(line.strip())
        return lines

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/x", requests
    finally:
        done.set()
        listener.close()


@pytest.fixture
def client():
    client = HttpClient(60, 60)
    yield client
    client.close()


def get(client, url, **settings):
    return client.request("GET", url, {}, path="a", seconds=settings.pop("seconds", 10), **settings)


def test_a_body_in_chunks_is_put_together(client):
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5\r\ndefgh\r\n0\r\n\r\n"
    with scripted_server(answer) as (url, _):
        assert get(client, url).body == b"abcdefgh"


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5\r\ndef",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
    b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: ",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 2",
    b"",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the connection ends",
    b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
    b"SMTP ready\r\n\r\n",
], ids=range(10))
def test_half_an_answer_is_none(client, answer):
    with scripted_server(answer) as (url, _), pytest.raises(ObjectStoreError):
        get(client, url)


def test_connections_are_used_again(client):
    with scripted_server(*[b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx."] * 3) as (url, requests):
        assert [get(client, url).body for _ in range(3)] == [b"x."] * 3
        assert len(requests) == 3
        assert client._pool.connection_from_url(url).num_connections == 1


def test_memory_of_the_caller_takes_a_part(client):
    memory = bytearray(b"-----")
    with scripted_server(*[b"HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\n\r\nxy."] * 2) as (url, _):
        for _ in range(2):
            answer = get(client, url, into=memoryview(memory))
            assert (answer.size, answer.body, memory) == (3, b"", b"xy.--")
            memory[:] = b"-----"
        assert client._pool.connection_from_url(url).num_connections == 1


def test_a_body_that_ends_early_leaves_memory_to_nobody(client):
    answer = b"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nConnection: close\r\n\r\nabc"
    with scripted_server(answer) as (url, _), pytest.raises(ObjectStoreError, match="3 of 5"):
        get(client, url, into=memoryview(bytearray(5)))


def test_more_than_the_memory_takes_is_refused(client):
    answer = b"HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\n\r\nxy."
    with scripted_server(answer) as (url, _), pytest.raises(ObjectStoreError, match="longer"):
        get(client, url, into=memoryview(bytearray(2)))


def test_a_large_body_travels_in_pieces_with_its_length(client):
    body = bytes(3 * PART_BYTES + 5)
    with scripted_server(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n.") as (url, requests):
        client.request("PUT", url, {"Content-Length": str(len(body))}, path="a", seconds=10, body=memoryview(body))
        assert requests[0][1] == len(body)


def test_silence_ends_with_the_time_that_was_given(client):
    with scripted_server(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegin", hold=True) as (url, _):
        began = time.monotonic()
        with pytest.raises(ObjectStoreError):
            get(client, url, seconds=0.1)
        assert time.monotonic() - began < 30        # the client's own idle timeout is 60 s


def test_nobody_there_is_an_error_of_the_object(client):
    with pytest.raises(ObjectStoreError) as caught:
        get(client, "http://127.0.0.1:9/x")
    assert caught.value.path == "a"


def test_a_fork_waits_for_no_thread_of_its_parent(client):
    with scripted_server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx.") as (url, _):
        get(client, url)
    pool = client._pool.connection_from_url(url)
    connection = pool.pool.get()
    pool.pool.put(connection)
    assert connection.sock is not None

    def request():
        get(client, "http://127.0.0.1:9/x")

    def end():                                          # as urllib3 does when a process ends
        with pytest.raises(queue.Empty):
            pool.pool.get(block=False)

    with held_by_a_thread(client._pool.pools.lock, pool.pool.mutex):
        outcomes = outcomes_in_a_child({"request": request, "close": client.close, "end": end})
    assert outcomes.pop("request").startswith("ObjectStoreError")
    assert outcomes == {"close": "", "end": ""}
    assert pool.pool.get() is connection                # the parent's own
