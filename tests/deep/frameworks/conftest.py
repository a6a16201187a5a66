"""Django, which can be set up once for a process."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def django(server):
    """Django, with a database in memory."""
    django = pytest.importorskip("django")
    from django.conf import settings

    settings.configure(
        ALLOWED_HOSTS=["*"],
        HANDFAST_URL=server.url,
        HANDFAST={"default": {"URL": server.url, "NAMESPACE": "shop"}, "cached": {"CACHE": "default"}},
        INSTALLED_APPS=["django.contrib.contenttypes", "handfast.contrib.django"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "ATOMIC_REQUESTS": True}},
        CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}},
        ROOT_URLCONF="tests.deep.frameworks.django_adapted",
        SECRET_KEY="x",
    )
    django.setup()
    return django
