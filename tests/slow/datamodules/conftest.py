"""As for the tests of data modules."""

from tests.datamodules.conftest import caches, private_cache, shared_data

__all__ = ["caches", "private_cache", "shared_data"]
