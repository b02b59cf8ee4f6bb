"""Registers, queries with blocking, locks and takes away again with py-consul. Any surprise ends it with a traceback."""

import sys
import threading
import time

import consul

host, port = sys.argv[1].split(":")
client = consul.Consul(host=host, port=int(port))


def blocked(query, change):
    """The answer of a query that blocks, which a change ends long before its wait of 20 s."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append((query(), time.monotonic())))
    thread.start()
    time.sleep(0.3)
    assert not answers, "the query did not block"
    began = time.monotonic()
    change()
    thread.join(timeout=40)
    (answer, ended), = answers
    assert ended - began < 18, ended - began
    return answer


assert client.status.leader()
assert client.catalog.datacenters() == ["dc1"]

# Registering wakes a query for a service that is not there yet.
index, nothing = client.health.service("py")
assert nothing == [] and int(index) > 0, (index, nothing)
check = consul.Check.ttl("10s")
register = lambda: client.agent.service.register(
    "py", service_id="py-1", address="10.0.0.1", port=80, tags=["version|v1"], meta={"protocol": "http"}, check=check)
index, entries = blocked(lambda: client.health.service("py", index=index, wait="20s"), register)
entry, = entries
assert entry["Service"]["ID"] == "py-1" and entry["Service"]["Port"] == 80, entry
assert entry["Service"]["Meta"] == {"protocol": "http"} and entry["Service"]["Tags"] == ["version|v1"], entry
assert [c["Status"] for c in entry["Checks"] if c["ServiceID"] == "py-1"] == ["critical"], entry
index, services = client.catalog.services()
assert services["py"] == ["version|v1"], services

# Health.
index, entries = client.health.service("py", passing=True)
assert entries == [], entries
index, _ = client.health.service("py")
index, entries = blocked(
    lambda: client.health.service("py", index=index, wait="20s"), lambda: client.agent.check.ttl_pass("service:py-1"))
index, entries = client.health.service("py", passing=True)
assert len(entries) == 1, entries
assert client.health.state("critical")[1] == []
client.agent.service.maintenance("py-1", True, "upgrade")
critical, = client.health.state("critical")[1]
assert critical["CheckID"] == "_service_maintenance:py-1" and critical["Notes"] == "upgrade", critical
client.agent.service.maintenance("py-1", False)

# A wait that is over returns the same.
index, entries = client.health.service("py")
began = time.monotonic()
again, same = client.health.service("py", index=index, wait="500ms")
assert again == index and same == entries and 0.4 < time.monotonic() - began < 60

# The catalog, filters and data centres.
assert client.catalog.register("external", "10.9.9.9", service={"service": "db", "port": 5432, "tags": ["a", "b"]})
_, instances = client.catalog.service("db")
assert instances[0]["ServicePort"] == 5432 and instances[0]["Address"] == "10.9.9.9", instances
_, entries = client.health.service("db", tag="a")
assert len(entries) == 1, entries
_, entries = client.health.service("db", tag="c")
assert entries == [], entries
assert client.catalog.deregister("external")
assert client.catalog.service("db")[1] == []

# A lock.
one, two = client.session.create(name="one", ttl=10, lock_delay=1), client.session.create(name="two", ttl=10, lock_delay=1)
assert client.kv.put("lock", "1", acquire=one) and not client.kv.put("lock", "2", acquire=two)
index, pair = client.kv.get("lock")
assert pair["Session"] == one and pair["Value"] == b"1" and pair["LockIndex"] == 1, pair
index, pair = blocked(
    lambda: client.kv.get("lock", index=index, wait="20s"), lambda: client.kv.put("lock", "1", release=one))
assert "Session" not in pair, pair
assert client.kv.put("lock", "2", acquire=two)
assert client.session.renew(two)["ID"] == two
client.session.destroy(two)
assert "Session" not in client.kv.get("lock")[1]
assert client.kv.delete("lock") and client.kv.get("lock")[1] is None

assert client.agent.service.deregister("py-1")
assert "py" not in client.catalog.services()[1]
print("done")
