import pytest


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"
