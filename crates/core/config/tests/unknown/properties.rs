//! Properties of objects with several unknown fields and values, at random places of all kinds.

use super::access::{self, opens_nothing};
use pilotfish_config::{Limits, MeshFile, ReadFile, read, read_mesh_file};
use pilotfish_files::{FileChange, FileContent, FileRole, FileState};
use pilotfish_model::{Kind, Object};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[path = "../../../crd/tests/support/schema.rs"]
#[allow(dead_code, reason = "shared with the tests of definitions")]
mod schema;

/// Name that no version has, far from every name that one has.
const FIELD: &str = "qqqUnknownToEveryVersionQqq";
const VALUE: &str = "QQQ_UNKNOWN_TO_EVERY_VERSION";
const UNKNOWN: &str = "unknown to this version";

/// Objects of kinds that are not recorded, and of kinds that restrict access, with all that they may have.
const MORE: &str = r"
{apiVersion: networking.istio.io/v1beta1, kind: ProxyConfig, spec: {selector: {matchLabels: {a: b}}, concurrency: 1, image: {imageType: debug}}}
---
{apiVersion: networking.istio.io/v1, kind: WorkloadGroup, spec: {metadata: {labels: {a: b}}, template: {network: n, ports: {http: 80}, weight: 2},
  probe: {httpGet: {path: /a, port: 80}}}}
---
{apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ServiceExport, spec: {}}
---
{apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ServiceImport, spec: {type: ClusterSetIP, ips: [10.0.0.1], ports: [{port: 80, protocol: TCP}]}}
---
{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, spec: {selector: {matchLabels: {a: b}}, action: ALLOW, rules: [
  {from: [{source: {principals: [a], notNamespaces: [b]}}, {source: {ipBlocks: [10.0.0.0/8]}}], to: [{operation: {paths: [/a], methods: [GET]}}],
   when: [{key: source.namespace, values: [c]}, {key: 'request.headers[x]', notValues: [d]}]}, {to: [{operation: {ports: ['80']}}]}]}}
---
{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, spec: {targetRefs: [{group: '', kind: Service, name: a}], action: DENY, rules: [
  {from: [{source: {namespaces: [a], notPrincipals: [b]}}, {source: {ipBlocks: [10.0.0.0/8]}}], to: [{operation: {paths: [/a], hosts: [h]}}],
   when: [{key: source.namespace, values: [c]}, {key: 'request.headers[x]', notValues: [d]}]}, {to: [{operation: {ports: ['80']}}]}]}}
---
{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, spec: {selector: {matchLabels: {a: b}}, action: CUSTOM, provider: {name: p}, rules: [
  {to: [{operation: {paths: [/a], methods: [GET]}}, {operation: {hosts: [h]}}]}, {from: [{source: {namespaces: [a]}}]}]}}
---
{apiVersion: security.istio.io/v1, kind: PeerAuthentication, spec: {selector: {matchLabels: {a: b, c: d}}, mtls: {mode: PERMISSIVE},
  portLevelMtls: {'80': {mode: DISABLE}, '81': {mode: STRICT}, '82': {mode: UNSET}}}}
---
{apiVersion: security.istio.io/v1, kind: PeerAuthentication, spec: {mtls: {mode: STRICT}}}
---
{apiVersion: security.istio.io/v1, kind: RequestAuthentication, spec: {selector: {matchLabels: {a: b}}, jwtRules: [
  {issuer: a, audiences: [x], jwks: '{keys: []}', fromHeaders: [{name: t, prefix: 'T '}], outputClaimToHeaders: [{header: h, claim: c}]},
  {issuer: b, fromParams: [p], jwksUri: 'https://b.example/keys'}]}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, spec: {selector: {a: b}, servers: [
  {port: {number: 443, name: a, protocol: HTTPS}, hosts: [a.example], tls: {mode: MUTUAL, credentialName: c, minProtocolVersion: TLSV1_2}},
  {port: {number: 444, name: b, protocol: HTTPS}, hosts: [b.example], tls: {mode: OPTIONAL_MUTUAL, credentialName: d, subjectAltNames: [s]}},
  {port: {number: 445, name: c, protocol: TLS}, hosts: [c.example], tls: {mode: ISTIO_MUTUAL}},
  {port: {number: 80, name: d, protocol: HTTP}, hosts: [d.example]}]}}
---
{apiVersion: networking.istio.io/v1, kind: Sidecar, spec: {workloadSelector: {labels: {a: b}}, ingress: [
  {port: {number: 443, name: a, protocol: HTTPS}, defaultEndpoint: '127.0.0.1:80', tls: {mode: MUTUAL, serverCertificate: a, privateKey: b, caCertificates: c}},
  {port: {number: 444, name: b, protocol: TLS}, defaultEndpoint: '127.0.0.1:81',
   tls: {mode: OPTIONAL_MUTUAL, serverCertificate: a, privateKey: b, caCertificates: c, minProtocolVersion: TLSV1_2, verifyCertificateSpki: [k]}}],
  egress: [{hosts: ['*/*']}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: BackendTLSPolicy, spec: {targetRefs: [{group: '', kind: Service, name: a, sectionName: p}],
  validation: {hostname: a.example, caCertificateRefs: [{group: '', kind: ConfigMap, name: c}], subjectAltNames: [{type: Hostname, hostname: b.example}]}}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, spec: {gatewayClassName: istio,
  tls: {backend: {clientCertificateRef: {name: z}}, frontend: {default: {validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: c}]}},
    perPort: [{port: 444, tls: {validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: d}]}}}, {port: 445, tls: {}}]}},
  listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: t}]}, allowedRoutes: {namespaces: {from: Same}}},
    {name: b, port: 444, protocol: HTTPS, tls: {mode: Terminate, certificateRefs: [{name: u}]}},
    {name: c, port: 445, protocol: HTTPS, tls: {certificateRefs: [{name: v}],
      frontendValidation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: e}]}},
      allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {a: b}}}, kinds: [{kind: HTTPRoute}]}},
    {name: d, port: 446, protocol: TLS, tls: {mode: Passthrough}}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, spec: {gatewayClassName: istio, listeners: [
  {name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: t}], options: {gateway.istio.io/tls-terminate-mode: MUTUAL}}},
  {name: b, port: 444, protocol: HTTPS, tls: {certificateRefs: [{name: t}], options: {gateway.istio.io/tls-terminate-mode: ISTIO_MUTUAL}}}]}}
---
{apiVersion: gateway.networking.k8s.io/v1beta1, kind: ReferenceGrant, spec: {
  from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: n}, {group: g, kind: B, namespace: m}],
  to: [{group: '', kind: Secret, name: s}, {group: '', kind: ConfigMap}]}}
";

/// Mesh config with the parts that restrict access, and others of each type.
const MESH: &str = r"
{rootNamespace: r, accessLogEncoding: JSON, tlsDefaults: {minProtocolVersion: TLSV1_2, ecdhCurves: [P-256]},
 meshMTLS: {minProtocolVersion: TLSV1_2}, pathNormalization: {normalization: MERGE_SLASHES}, outboundTrafficPolicy: {mode: REGISTRY_ONLY},
 defaultConfig: {concurrency: 2, proxyMetadata: {A: b}, tracing: {sampling: 10}, holdApplicationUntilProxyStarts: true},
 extensionProviders: [{name: p, envoyExtAuthzHttp: {service: a.example, port: 80}}]}
";
const NETWORKS: &str =
    "{networks: {n: {endpoints: [{fromCidr: 10.0.0.0/8}], gateways: [{address: 10.0.0.1, port: 15443}]}}}";

/// Object of a case, or the content of a mesh file.
struct Case {
    mesh: Option<MeshFile>,
    value: Value,
}

impl Case {
    fn read(&self, value: &Value) -> ReadFile {
        let (text, limits) = (value.to_string(), Limits::default());
        match self.mesh {
            None => read("a.json", text.as_bytes(), &limits),
            Some(mesh) => read_mesh_file(mesh, "a.json", text.as_bytes(), &limits),
        }
    }

    /// The object, if it is valid as it is written.
    fn whole(&self) -> Option<Object> {
        let file = self.read(&self.value);
        let is_plain = file.rejected.is_empty() && !reported(&file).iter().any(|text| text.contains(UNKNOWN));
        file.objects.into_iter().next().map(|read| read.object).filter(|_| is_plain)
    }

    fn role(&self) -> FileRole {
        self.mesh.map_or(FileRole::Objects, FileRole::Mesh)
    }

    fn changed(&self, changes: &[Change]) -> Value {
        let mut value = self.value.clone();
        for change in changes {
            change.apply(&mut value);
        }
        value
    }
}

/// Maximum cases of a kind: most of those recorded are alike.
const MOST_OF_A_KIND: usize = 24;

/// The recorded objects and mesh files, and others.
fn cases() -> Vec<Case> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../oracle/cases");
    let mut folders: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    let mut cases = Vec::new();
    let mut add = |mesh: Option<MeshFile>, text: &str| {
        cases.extend(schema::documents(text).into_iter().map(|value| Case { mesh, value }));
    };
    for folder in folders {
        add(None, &std::fs::read_to_string(folder.join("config.yaml")).unwrap());
        for (mesh, name) in [(MeshFile::Config, "mesh.yaml"), (MeshFile::Networks, "networks.yaml")] {
            if let Ok(text) = std::fs::read_to_string(folder.join(name)) {
                add(Some(mesh), &text);
            }
        }
    }
    add(Some(MeshFile::Config), MESH);
    add(Some(MeshFile::Networks), NETWORKS);
    for mut value in schema::documents(MORE) {
        value["metadata"] = json!({"name": "a", "namespace": "shop"});
        cases.push(Case { mesh: None, value });
    }
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    cases.reverse();
    cases.retain(|case| {
        let count = kinds.entry(format!("{} {:?}", case.value["kind"], case.mesh)).or_default();
        *count += 1;
        *count <= MOST_OF_A_KIND
    });
    cases
}

/// Something unknown at a place.
#[derive(Clone, Debug)]
enum Change {
    /// Another field of the object at this pointer.
    Field(String, Value),
    /// Another text in the place of this one.
    Value(String),
}

impl Change {
    fn apply(&self, value: &mut Value) {
        match self {
            Self::Field(place, field) => {
                if let Some(Value::Object(fields)) = value.pointer_mut(place) {
                    fields.insert(FIELD.to_owned(), field.clone());
                }
            }
            Self::Value(place) => {
                if let Some(text) = value.pointer_mut(place) {
                    *text = VALUE.into();
                }
            }
        }
    }
}

/// The changes that an object can have: a field in each structure, and a value for each text.
fn changes(value: &Value, pointer: &str, out: &mut Vec<Change>) {
    match value {
        Value::Object(fields) => {
            out.push(Change::Field(pointer.to_owned(), json!(7)));
            let around = ["apiVersion", "kind", "metadata", "status"];
            for (name, inner) in
                fields.iter().filter(|(name, _)| !pointer.is_empty() || !around.contains(&name.as_str()))
            {
                changes(inner, &format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1")), out);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                changes(inner, &format!("{pointer}/{index}"), out);
            }
        }
        Value::String(_) => out.push(Change::Value(pointer.to_owned())),
        _ => {}
    }
}

/// Removes a field or an item.
fn remove(value: &mut Value, pointer: &str) {
    let (home, last) = pointer.rsplit_once('/').unwrap();
    match value.pointer_mut(home) {
        Some(Value::Object(fields)) => drop(fields.remove(&last.replace("~1", "/").replace("~0", "~"))),
        Some(Value::Array(items)) => drop(items.remove(last.parse().unwrap())),
        _ => {}
    }
}

/// Pseudorandom numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides.max(1)
    }

    /// One of the changes, with any content of a field.
    fn change(&mut self, all: &[Change]) -> Change {
        let fields = [json!(7), json!({"a": ["b"]}), json!("c")];
        match &all[self.roll(all.len())] {
            Change::Field(place, _) => Change::Field(place.clone(), fields[self.roll(fields.len())].clone()),
            change @ Change::Value(_) => change.clone(),
        }
    }
}

/// Warnings and errors of a file.
fn reported(file: &ReadFile) -> Vec<String> {
    let of_objects = file.objects.iter().flat_map(|read| &read.warnings);
    let of_rejected = file.rejected.iter().flat_map(|read| &read.problems);
    of_objects.chain(of_rejected).map(ToString::to_string).collect()
}

/// Reports of unknown parts.
fn unknown(file: &ReadFile) -> Vec<String> {
    reported(file).into_iter().filter(|text| text.contains(UNKNOWN)).collect()
}

/// The object that is in force without an earlier version: as it is read, or closed.
fn in_force(mut file: ReadFile) -> Option<Object> {
    match file.objects.pop() {
        Some(read) => Some(read.object),
        None => file.rejected.pop().and_then(|rejected| rejected.closed),
    }
}

/// True for kinds of the Gateway API and Kubernetes of which every field is known.
fn is_complete(kind: Kind) -> bool {
    matches!(kind, Kind::Service | Kind::EndpointSlice | Kind::Ingress | Kind::IngressClass)
        || kind.group() == "gateway.networking.k8s.io"
}

/// True for a place in a field that is known and not read.
fn is_unread(place: &str) -> bool {
    ["/spec/allowedListeners", "/spec/sessionAffinityConfig"].iter().any(|field| place.starts_with(field))
}

/// A change alone: the object in force and reports of unknown parts. `None` if it makes another valid object,
/// as in maps with free keys and texts with any value.
fn alone(case: &Case, whole: &Object, change: &Change) -> Option<(Object, Vec<String>)> {
    let file = case.read(&case.changed(std::slice::from_ref(change)));
    let (told, is_invalid) = (unknown(&file), !file.rejected.is_empty());
    let now = in_force(file);
    let (field, value) = (format!("{FIELD}: "), format!("{VALUE:?}"));
    let is_key = told.iter().any(|text| !text.contains(&field) && !text.contains(&value));
    if is_key || told.is_empty() && (is_invalid || now.as_ref() != Some(whole)) {
        return None;
    }
    Some((now?, told))
}

#[test]
fn unknown_parts_outside_of_the_table_change_nothing() {
    let mut dice = Dice(7);
    let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
    let (mut several, mut values) = (0, 0);
    for case in cases() {
        let (Some(whole), mut all) = (case.whole(), Vec::new()) else { continue };
        changes(&case.value, "", &mut all);
        for _ in 0..4 {
            let mut ignored: Vec<Change> = Vec::new();
            for _ in 0..=dice.roll(3) {
                let change = dice.change(&all);
                let Some((now, told)) = alone(&case, &whole, &change) else { continue };
                let kind = whole.key().kind;
                if let (Change::Field(place, _), true) = (&change, is_complete(kind)) {
                    assert!(!told.is_empty() || is_unread(place), "{kind}: {place} is not told");
                }
                match &change {
                    Change::Field(..) if told.iter().all(|text| text.ends_with(": it is ignored")) => {
                        assert_eq!(now, whole, "{kind}: {change:?}");
                        ignored.push(change);
                    }
                    Change::Value(place)
                        if told.iter().all(|text| text.contains(": it counts as not set")) =>
                    {
                        let mut without = case.value.clone();
                        remove(&mut without, place);
                        let expected = in_force(case.read(&without));
                        assert!(expected.is_none_or(|expected| now == expected), "{kind}: {change:?}");
                        values += 1;
                    }
                    _ => {}
                }
            }
            let file = case.read(&case.changed(&ignored));
            let told = unknown(&file);
            assert_eq!(in_force(file).as_ref(), Some(&whole), "{ignored:?}");
            several += usize::from(told.len() > 1);
            *kinds.entry(whole.key().kind).or_default() += ignored.len();
        }
    }
    let untried: Vec<&Kind> = Kind::ALL.iter().filter(|kind| !kinds.contains_key(kind)).collect();
    assert!(untried.is_empty(), "without an unknown part: {untried:?}");
    assert!(several > 200 && values > 10, "{several} objects with several fields, {values} values");
}

#[test]
fn unknown_parts_of_restrictions_open_nothing() {
    let mut dice = Dice(3);
    let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
    for case in cases() {
        let Some(whole) = case.whole().filter(|whole| access::KINDS.contains(&whole.key().kind)) else {
            continue;
        };
        let kind = whole.key().kind;
        assert!(opens_nothing(&whole, Some(&whole)), "{kind}: the object itself\n{}", case.value);
        let mut all = Vec::new();
        changes(&case.value, "", &mut all);
        // Another known value, or a key of a map, makes another object.
        all.retain(|change| !unknown(&case.read(&case.changed(std::slice::from_ref(change)))).is_empty());
        for round in 0..all.len() + 24 {
            // Each change alone, and several at once.
            let tried: Vec<Change> = match all.get(round) {
                Some(change) => vec![change.clone()],
                None => (0..2 + dice.roll(2)).map(|_| dice.change(&all)).collect(),
            };
            let changed = case.changed(&tried);
            let file = case.read(&changed);
            let told = reported(&file);
            let now = in_force(file);
            assert!(opens_nothing(&whole, now.as_ref()), "{kind} {tried:?}\n{told:#?}\n{changed}\n{now:#?}");
            *kinds.entry(kind).or_default() += usize::from(now.as_ref() != Some(&whole));
        }
    }
    let tried: BTreeSet<Kind> =
        kinds.iter().filter(|(_, count)| **count > 3).map(|(kind, _)| *kind).collect();
    assert_eq!(tried, access::KINDS.iter().copied().collect(), "{kinds:?}");
}

#[test]
fn a_start_with_the_last_version_equals_its_whole_history() {
    let change = |case: &Case, value: &Value| FileChange {
        path: std::path::Path::new("a.yaml").into(),
        name: "a.yaml".into(),
        role: case.role(),
        content: FileContent::Bytes(value.to_string().into_bytes()),
    };
    let mut dice = Dice(11);
    let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
    for case in cases() {
        let (Some(whole), mut all) = (case.whole(), Vec::new()) else { continue };
        changes(&case.value, "", &mut all);
        let mut running = FileState::new(Limits::default());
        running.apply(vec![change(&case, &case.value)]);
        for _ in 0..4 {
            let several: Vec<Change> = (0..=dice.roll(3)).map(|_| dice.change(&all)).collect();
            let last = case.changed(&several);
            // An object that is invalid as a whole keeps its last good version.
            if case.read(&last).rejected.is_empty() {
                running.apply(vec![change(&case, &last)]);
                let mut fresh = FileState::new(Limits::default());
                fresh.apply(vec![change(&case, &last)]);
                assert_eq!(running.objects(), fresh.objects(), "{last}");
                *kinds.entry(whole.key().kind).or_default() += 1;
            }
        }
    }
    let untried: Vec<&Kind> = Kind::ALL.iter().filter(|kind| !kinds.contains_key(kind)).collect();
    assert!(untried.is_empty() && kinds.values().sum::<usize>() > 800, "{untried:?} {kinds:?}");
}
