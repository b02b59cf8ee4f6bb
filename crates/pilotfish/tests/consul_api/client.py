"""Registers with a Pilotfish, reads, blocks and takes away again with py-consul. Any surprise ends it with a traceback."""

import sys
import threading
import time

import consul

address, step, number = sys.argv[1:]
host, port = address.split(":")
client = consul.Consul(host=host, port=int(port))


def blocked(query, change):
    """The answer of a query that blocks until a change."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(query()))
    thread.start()
    change()
    thread.join(timeout=120)
    return answers[0]


def until(what, condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(what)


def register():
    assert client.status.leader()
    assert client.catalog.datacenters() == ["dc1"]
    assert client.agent.self()["Config"]["NodeName"] == "127.0.0.1"
    index, nothing = client.health.service("py")
    assert nothing == [] and int(index) > 0, (index, nothing)
    check = consul.Check.ttl("10m")
    check["DeregisterCriticalServiceAfter"] = "30m"
    add = lambda: client.agent.service.register(
        "py", service_id="py-1", address="127.0.0.1", port=int(number), tags=["version|v1"], meta={"protocol": "http"},
        check=check)
    index, (entry,) = blocked(lambda: client.health.service("py", index=index, wait="10m"), add)
    assert entry["Service"]["ID"] == "py-1" and entry["Service"]["Port"] == int(number), entry
    assert entry["Service"]["Meta"] == {"protocol": "http"} and entry["Service"]["Tags"] == ["version|v1"], entry
    assert [check["Status"] for check in entry["Checks"]] == ["critical"], entry
    assert client.health.service("py", passing=True)[1] == []
    index, (entry,) = blocked(
        lambda: client.health.service("py", index=index, wait="10m"),
        lambda: client.agent.check.ttl_pass("service:py-1"))
    assert len(client.health.service("py", passing=True, tag="version|v1")[1]) == 1
    assert client.catalog.services()[1]["py"] == ["version|v1"]
    assert [one["ServiceID"] for one in client.catalog.service("py")[1]] == ["py-1"]
    assert list(client.agent.services()) == ["py-1"]
    assert client.agent.services(filter_expr='Service == "other"') == {}

    client.agent.service.maintenance("py-1", True, "upgrade")
    critical, = client.health.state("critical")[1]
    assert critical["CheckID"] == "_service_maintenance:py-1" and critical["Notes"] == "upgrade", critical
    client.agent.service.maintenance("py-1", False)
    index, entries = client.health.service("py")
    again, same = client.health.service("py", index=index, wait="100ms")
    assert again == index and same == entries


def checked():
    """A check that Pilotfish runs, of a port where nobody listens."""
    check = consul.Check.http(f"http://127.0.0.1:{number}/health", "1s", timeout="1s")
    assert client.agent.service.register("checked", address="127.0.0.1", port=int(number), check=check)
    until("the check fails", lambda: client.health.service("checked", passing=True)[1] == [])
    (check,) = client.health.checks("checked")[1]
    assert check["Status"] == "critical" and check["Type"] == "http", check
    assert client.agent.service.deregister("checked")
    try:
        client.agent.service.register("checked", port=1, check=consul.Check.script(["x"], "1s"))
        raise AssertionError("a script is refused")
    except consul.exceptions.BadRequest as error:
        assert "runs no scripts" in str(error), error


def leave():
    assert client.agent.service.deregister("py-1")
    assert not client.agent.service.deregister("py-1")
    assert client.health.service("py")[1] == []
    assert "py" not in client.catalog.services()[1]


def beat():
    """A program that reports until it is killed."""
    assert client.agent.service.register("beat", port=int(number), check=consul.Check.ttl("2s"))
    while True:
        client.agent.check.ttl_pass("service:beat")
        print("beaten", flush=True)
        time.sleep(0.2)


{"register": register, "checked": checked, "leave": leave, "beat": beat}[step]()
print("done")
