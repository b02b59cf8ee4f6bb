// Registers with a Pilotfish, watches and takes away again with the npm package `consul`. Any surprise ends it with an exception.
const assert = require("node:assert/strict");
const Consul = require("consul");

const [host, port] = process.argv[2].split(":");
const client = new Consul({ host, port: Number(port) });

// The first change of a watch that satisfies the condition.
function seen(watch, wanted) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("nothing was seen")), 60000);
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
  const watch = client.watch({ method: client.health.service, options: { service: "js", wait: "1m" } });
  const catalog = client.watch({ method: client.catalog.service.list, options: { wait: "1m" } });
  const registered = Promise.all([
    seen(watch, (entries) => entries.length === 1),
    seen(catalog, (services) => "js" in services),
  ]);
  await client.agent.service.register({
    name: "js", id: "js-1", address: "127.0.0.1", port: 81, tags: ["version|v2"], meta: { protocol: "grpc" },
    check: { ttl: "10m", deregistercriticalserviceafter: "1m" },
  });
  const [[entry], services] = await registered;
  assert.equal(entry.Service.ID, "js-1");
  assert.equal(entry.Service.Meta.protocol, "grpc");
  assert.deepEqual(services.js, ["version|v2"]);

  const passed = seen(watch, (entries) => entries[0].Checks.some((check) => check.Status === "passing"));
  await client.agent.check.pass("service:js-1");
  await passed;
  assert.equal((await client.health.service({ service: "js", passing: true })).length, 1);
  assert.equal((await client.health.checks("js"))[0].CheckID, "service:js-1");
  assert.ok((await client.health.state("passing")).length >= 1);

  const gone = seen(watch, (entries) => entries.length === 0);
  await client.agent.service.deregister("js-1");
  await gone;
  for (const each of [watch, catalog]) each.end();
  console.log("done");
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
