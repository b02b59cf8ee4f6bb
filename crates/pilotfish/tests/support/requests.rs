//! Worlds out of chance, requests in them, and what an Envoy did with each: a line of its access log. `why`
//! has to say the same.

use super::dice::Dice;
use pilotfish_testkit::real::{Backend, Envoy, EnvoyOptions, Pilotfish};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Services of a world.
pub(crate) const SERVICES: usize = 5;
/// Endpoints that the services of a world share out among them.
pub(crate) const BACKENDS: usize = 12;

/// A service of a world.
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) namespace: &'static str,
    /// Backends by number, with their version, and whether they are ready.
    pub(crate) endpoints: Vec<(usize, &'static str, bool)>,
}

impl Service {
    /// The services of a world. Some have no endpoint.
    pub(crate) fn all(dice: &mut Dice, namespaces: &[&'static str]) -> Vec<Self> {
        let service =
            |at| Self { name: format!("s{at}"), namespace: dice.pick(namespaces), endpoints: Vec::new() };
        let mut services: Vec<Self> = (0..SERVICES).map(service).collect();
        for backend in 0..BACKENDS {
            let service = &mut services[dice.below(SERVICES)];
            service.endpoints.push((backend, dice.pick(&["v1", "v2"]), dice.chance(75)));
        }
        services
    }

    pub(crate) fn host(&self) -> String {
        format!("{}.{}.svc.cluster.local", self.name, self.namespace)
    }

    /// It and its endpoints as YAML. `metadata`: what else its own has.
    pub(crate) fn yaml(&self, at: usize, port: u16, metadata: &str, backends: &[Backend]) -> String {
        let Self { name, namespace, .. } = self;
        let mut yaml = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}, {metadata}}}\nspec: {{clusterIP: \
             10.1.0.{}, selector: {{app: {name}}}, ports: [{{name: http, port: {port}}}]}}\n---\n",
            at + 1
        );
        for (backend, version, is_ready) in &self.endpoints {
            let (ip, port) = (address(*backend), backends[*backend].port());
            // Each has a port of its own, so each has a slice.
            let _ = write!(
                yaml,
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}-{backend}, namespace: {namespace}, labels: {{app: {name}, \
                 version: {version}}}}}\nspec: {{containers: [{{name: app, image: x}}]}}\nstatus: {{phase: Running, podIP: {ip}, \
                 podIPs: [{{ip: {ip}}}], conditions: [{{type: Ready, status: \"{is_ready}\"}}]}}\n---\n\
                 apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-{backend}, namespace: {namespace}, \
                 labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{{name: http, port: {port}, protocol: \
                 TCP}}]\nendpoints: [{{addresses: [{ip}], conditions: {{ready: {is_ready}, serving: {is_ready}, terminating: false}}, \
                 targetRef: {{kind: Pod, name: {name}-{backend}, namespace: {namespace}}}}}]\n---\n"
            );
        }
        yaml
    }

    /// A DestinationRule with a subset for each version.
    pub(crate) fn subsets(&self) -> String {
        let Self { name, namespace, .. } = self;
        format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  \
             host: {name}\n  subsets: [{{name: v1, labels: {{version: v1}}}}, {{name: v2, labels: {{version: v2}}}}]\n---\n"
        )
    }
}

/// Where a rule for the service at that place sends requests: mostly to the service itself, and sometimes to
/// one that may not be seen.
pub(crate) fn destinations(services: &[Service], at: usize, dice: &mut Dice) -> String {
    let mut destination = |weight: usize| {
        let other = if dice.chance(30) { dice.below(SERVICES) } else { at };
        let subset = dice.pick(&["", "", ", subset: v1", ", subset: v2"]);
        format!("{{destination: {{host: {}{subset}}}, weight: {weight}}}", services[other].host())
    };
    let first = destination(100);
    if at.is_multiple_of(2) {
        return format!("route: [{first}]");
    }
    format!("route: [{}, {}]", destination(50), destination(50))
}

/// The address of a backend.
pub(crate) fn address(backend: usize) -> String {
    format!("127.0.3.{}", backend + 1)
}

/// What Envoy did with a request: a line of its access log.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    route: String,
    cluster: String,
    endpoint: String,
    pub(crate) code: String,
}

/// How the access log is written.
const FORMAT: &str = "%REQ(X-NUMBER)% %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% %ROUTE_NAME% %UPSTREAM_CLUSTER_RAW% %UPSTREAM_HOST% %RESPONSE_CODE%";

/// A control plane, an Envoy of it that writes an access log, and what answers its requests.
pub(crate) struct Stage {
    folder: TempDir,
    pub(crate) backends: Vec<Backend>,
    pub(crate) pilotfish: Pilotfish,
    _envoy: Envoy,
}

impl Stage {
    /// `None` where there is no Envoy and none is needed.
    pub(crate) async fn start(options: &EnvoyOptions) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut backends = Vec::new();
        for backend in 0..BACKENDS {
            backends.push(Backend::start(&address(backend), "it").await);
        }
        let settings = folder.path().join("mesh-config.yaml");
        let file = folder.path().join(ACCESS_LOG);
        let text = format!("accessLogFile: {}\naccessLogFormat: \"{FORMAT}\\n\"\n", file.display());
        std::fs::write(&settings, text).unwrap();
        let mesh = folder.path().join(MESH);
        std::fs::create_dir(&mesh).unwrap();
        let settings = settings.to_str().unwrap();
        // A world replaces most of the one before, which the guard would hold for 10 s and then take away
        // between a request and the question about it.
        let arguments = [mesh.to_str().unwrap(), "--mesh-config", settings, "--guard", "off"];
        let pilotfish = Pilotfish::launch(env!("CARGO_BIN_EXE_pilotfish"), &arguments);
        pilotfish.ready().await;
        let envoy = Envoy::start(&pilotfish, options).await?;
        Some(Self { folder, backends, pilotfish, _envoy: envoy })
    }

    /// Puts a world in the place of the one before.
    pub(crate) fn serve(&self, yaml: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, yaml).unwrap();
        std::fs::rename(&new, self.folder.path().join(MESH).join("world.yaml")).unwrap();
    }

    pub(crate) fn access_log(&self) -> PathBuf {
        self.folder.path().join(ACCESS_LOG)
    }
}

/// In the folder of a stage.
const ACCESS_LOG: &str = "access.log";
const MESH: &str = "mesh";

/// The lines of an access log by the number of the request; those of streams of bytes by the client's
/// address.
pub(crate) fn log(file: &Path) -> BTreeMap<String, Done> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let parts: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let [number, client, route, cluster, endpoint, code] = <[String; 6]>::try_from(parts).ok()?;
        Some((if number == "-" { client } else { number }, Done { route, cluster, endpoint, code }))
    });
    lines.collect()
}

/// The first words of items: addresses of endpoints.
pub(crate) fn addresses<'a>(items: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    items.map(|item| item.as_str().unwrap().split(' ').next().unwrap().to_owned()).collect()
}

pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Whether an answer says what Envoy did.
pub(crate) fn holds(why: &Value, done: &Done) -> Result<(), String> {
    let step = |name: &str| list(&why["steps"]).filter(|step| step["step"] == name).collect::<Vec<_>>();
    let outcome = why["outcome"].as_str().unwrap();
    let chosen = step("route").first().map_or("", |route| route["chosen"].as_str().unwrap()).to_owned();
    let is_route = match done.route.as_str() {
        // Without a route, or with one that no VirtualService names.
        "-" | "default" => !chosen.contains('"'),
        name => chosen.contains(&format!("{name:?}")),
    };
    if !is_route {
        return Err(format!("another route: {chosen:?}"));
    }
    let clusters: Vec<&Value> = step("cluster").iter().map(|cluster| &cluster["chosen"]).collect();
    if done.cluster != "-" && !clusters.iter().any(|cluster| **cluster == *done.cluster) {
        return Err(format!("another cluster: {clusters:?}"));
    }
    if done.endpoint != "-" {
        let endpoints = addresses(list(&why["endpoints"]));
        let goes = why["reaches"] == true || outcome.contains("% of requests");
        return match (goes, endpoints.contains(&done.endpoint)) {
            (true, true) => Ok(()),
            (false, _) => Err(format!("it ends: {outcome}")),
            (true, false) => Err(format!("other endpoints: {endpoints:?}")),
        };
    }
    let code = match done.code.as_str() {
        // A stream of bytes has none.
        "0" => "",
        code if code.starts_with('3') => "3xx",
        code => code,
    };
    if why["reaches"] == false && outcome.contains(code) {
        Ok(())
    } else {
        Err(format!("it goes on: {outcome}"))
    }
}
