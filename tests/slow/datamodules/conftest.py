"""As for the tests of data modules."""

from tests.datamodules.conftest import private_cache, shared_data

__all__ = ["private_cache", "shared_data"]
