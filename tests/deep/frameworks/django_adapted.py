"""The adapter in Django: views that hold a lock."""

from __future__ import annotations

import threading

from django.contrib import admin
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.http import HttpResponse
from django.urls import path

from handfast.contrib.django import client, locked
from handfast.events import Lost


@locked("order:{order_id}", timeout=0)
def pay(request, order_id):
    inside = transaction.get_connection().in_atomic_block
    return HttpResponse(f"{inside} {client().lock(f'order:{order_id}').locked()}")


@locked("order:{order_id}", timeout=0, busy=409)
@transaction.non_atomic_requests
async def pay_async(request, order_id):
    return HttpResponse("paid")


@locked("lost")
def loses(request):
    heard = threading.Event()
    client().on(lambda _: heard.set(), Lost)
    ContentType.objects.create(app_label="shop", model="order")
    client().lock("lost").force_release(reason="INC-1")
    assert heard.wait(20)
    return HttpResponse("too late")


@transaction.non_atomic_requests
def inside(request):
    with transaction.atomic():
        return pay(request, 7)


urlpatterns = [
    path("admin/", admin.site.urls),
    path("inside", inside),
    path("loses", loses),
    path("<int:order_id>", pay),
    path("async/<int:order_id>", pay_async),
]
