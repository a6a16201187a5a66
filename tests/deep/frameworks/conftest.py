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
        INSTALLED_APPS=[
            *(f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "messages", "sessions")),
            "handfast.contrib.django",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        STATIC_URL="static/",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "ATOMIC_REQUESTS": True}},
        CACHES={
            "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url},
            "ours": {
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": server.url,
                "OPTIONS": {"CLIENT_CLASS": "handfast.contrib.django.cache.CacheClient"},
            },
        },
        ROOT_URLCONF="tests.deep.frameworks.django_adapted",
        SECRET_KEY="x",
    )
    django.setup()
    return django
