"""A site in one file, for gunicorn with --preload: the client is made and used before the workers fork."""

from __future__ import annotations

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path

from handfast import AcquireTimeout, AsyncHandfast, Handfast
from tests.deep.frameworks.protected import URL, counted

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="for tests", DEBUG=False)
django.setup()
hf = Handfast(URL)
ahf = AsyncHandfast(URL)
kept = hf.lock("kept by the parent", ttl=3600).acquire()


def view(_):
    with hf.lock("django", ttl=3600) as lease, counted("django"):
        lease.check()
    return HttpResponse(lease.fence)


async def asynchronous(_):
    async with ahf.lock("django", ttl=3600) as lease:
        with counted("django"):
            lease.check()
    return HttpResponse(lease.fence)


@hf.lock("taken", timeout=0)
def decorated(_):
    return HttpResponse("in")


def busy(request):
    try:
        return decorated(request)
    except AcquireTimeout:
        return HttpResponse("taken", status=423)


def inherited(_):
    """A lease that the parent holds is not this worker's."""
    return HttpResponse(f"{kept.lost} {kept.release()}")


urlpatterns = [
    path("view", view),
    path("asynchronous", asynchronous),
    path("busy", busy),
    path("inherited", inherited),
]
application = get_wsgi_application()
