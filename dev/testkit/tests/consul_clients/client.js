// Registers, watches, locks and takes away again with the npm package `consul`. Any surprise ends it with an exception.
const assert = require("node:assert/strict");
const Consul = require("consul");

const [host, port] = process.argv[2].split(":");
const client = new Consul({ host, port: Number(port) });

// The first change of a watch that satisfies the condition.
function seen(watch, wanted) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("nothing was seen")), 20000);
    const look = (data) => {
      if (!wanted(data)) return;
      clearTimeout(timer);
      watch.off("change", look);
      resolve(data);
    };
    watch.on("change", look);
    watch.once("error", reject);
  });
}

async function main() {
  assert.ok(await client.status.leader());
  assert.deepEqual(await client.catalog.datacenters(), ["dc1"]);

  const watch = client.watch({ method: client.health.service, options: { service: "js", wait: "20s" } });
  const catalog = client.watch({ method: client.catalog.service.list, options: { wait: "20s" } });
  const registered = Promise.all([
    seen(watch, (entries) => entries.length === 1),
    seen(catalog, (services) => "js" in services),
  ]);
  await client.agent.service.register({
    name: "js", id: "js-1", address: "10.0.0.2", port: 81, tags: ["version|v2"], meta: { protocol: "grpc" },
    check: { ttl: "10s", deregistercriticalserviceafter: "1m" },
  });
  const [[entry], services] = await registered;
  assert.equal(entry.Service.ID, "js-1");
  assert.equal(entry.Service.Meta.protocol, "grpc");
  assert.deepEqual(services.js, ["version|v2"]);

  const passing = (entries) => entries[0].Checks.some((check) => check.Status === "passing" && check.ServiceID === "js-1");
  const passed = seen(watch, passing);
  await client.agent.check.pass("service:js-1");
  await passed;
  assert.equal((await client.health.service({ service: "js", passing: true })).length, 1);
  assert.equal((await client.health.checks("js"))[0].CheckID, "service:js-1");
  assert.ok((await client.health.state("passing")).length >= 2);

  const one = await client.session.create({ name: "one", ttl: "10s" });
  const two = await client.session.create({ name: "two", ttl: "10s" });
  assert.equal(await client.kv.set({ key: "lock", value: "1", acquire: one.ID }), true);
  // This client makes `undefined` of a false.
  assert.ok(!(await client.kv.set({ key: "lock", value: "2", acquire: two.ID })));
  const locked = client.watch({ method: client.kv.get, options: { key: "lock", wait: "20s" } });
  await seen(locked, (pair) => pair.Session === one.ID);
  const released = seen(locked, (pair) => pair.Session === undefined);
  assert.equal(await client.kv.set({ key: "lock", value: "1", release: one.ID }), true);
  await released;
  assert.equal(await client.kv.set({ key: "lock", value: "2", acquire: two.ID }), true);
  assert.equal((await client.session.get(two.ID)).Name, "two");
  await client.session.destroy(one.ID);
  await client.session.destroy(two.ID);

  const gone = seen(watch, (entries) => entries.length === 0);
  await client.agent.service.deregister("js-1");
  await gone;
  for (const each of [watch, catalog, locked]) each.end();
  console.log("done");
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
