"""moto's S3 server, in a separate process on a free local port."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

# The server prints its port when it listens, and exits at the end of its standard input. Conditional requests run one
# after the other: moto looks whether the object exists and stores it in two steps, between which another could do so.
SERVER = """
import io, json, sys, threading
from werkzeug.serving import make_server
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.server import MotoRequestHandler
application, one = DomainDispatcherApplication(create_backend_app), threading.Lock()
def atomic(environ, start_response):
    length = environ.get("CONTENT_LENGTH")
    if "HTTP_IF_NONE_MATCH" not in environ or not length:
        return application(environ, start_response)
    environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
    with one:
        return application(environ, start_response)
server = make_server("127.0.0.1", 0, atomic, threaded=True, request_handler=MotoRequestHandler)
print(json.dumps(server.port), flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
"""
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "hummock", "AWS_SECRET_ACCESS_KEY": "for-tests",
               "AWS_EC2_METADATA_DISABLED": "true"}


@contextmanager
def s3_server() -> Iterator[str]:
    """The endpoint of a running server. Clients of this process share what boto has read of the API's description,
    which takes 0.2 s of CPU."""
    from botocore import session

    with (pytest.MonkeyPatch.context() as patch,
          subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True) as process):
        patch.setattr(session, "create_loader", cache(session.create_loader))
        assert process.stdin and process.stdout
        line = process.stdout.readline()
        assert line, "the S3 server did not start"
        try:
            yield f"http://127.0.0.1:{json.loads(line)}"
        finally:
            process.stdin.close()
            process.wait(30)


def make_bucket(endpoint: str) -> str:
    """The name of a new bucket. REQUIRES the credentials of `ENVIRONMENT`."""
    import boto3

    name = f"test-{uuid.uuid4().hex}"
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=name)
    return name
