//! Proxies of istiod: from its debug pages, or from a file with nodes.

use super::name_of;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Type URL of the subscription to listeners.
const LISTENERS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
/// Metadata of which istiod makes objects: it registers a workload, or reports its health.
const WRITES: [&str; 2] = ["AUTO_REGISTER_GROUP", "WORKLOAD_ENTRY"];
/// Metadata and name of the program by which these connections are recognised. The node id stays: istiod
/// finds the Pod by it.
const MARK: (&str, &str) = ("PILOTFISH_COMPARE", "pilotfish-compare");
/// Domain of a proxy whose page does not have its node id.
pub(super) const DOMAIN: &str = "svc.cluster.local";

/// A proxy of istiod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct IstiodProxy {
    /// Name and namespace, such as `web-0.shop`.
    pub(super) name: String,
    /// `sidecar`, `router` or a type of ambient mode; empty if it is not known.
    pub(super) kind: String,
    /// Node, if it is known without istiod.
    pub(super) node: Option<Value>,
    /// Listeners that a client of gRPC subscribes to.
    pub(super) listeners: Vec<String>,
    /// Reason why its node is not known.
    pub(super) problem: Option<String>,
}

/// Proxies on istiod's page `/debug/syncz`, each once.
pub(super) fn of_syncz(page: &Value) -> Vec<IstiodProxy> {
    let mut proxies = BTreeMap::new();
    for row in page.as_array().into_iter().flatten() {
        let text = |field| row.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (name, kind) = (text("proxy"), text("proxy_type").to_lowercase());
        if !name.is_empty() {
            proxies.insert(name.clone(), IstiodProxy { name, kind, ..IstiodProxy::default() });
        }
    }
    proxies.into_values().collect()
}

/// Proxies of a file: a list of nodes, or of objects with a `node`, and `listeners` for clients of gRPC.
///
/// # Errors
/// If the file has another form.
pub(super) fn of_file(text: &[u8]) -> Result<Vec<IstiodProxy>, String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    let entries: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let entries = match entries {
        Value::Array(entries) => entries,
        one => vec![one],
    };
    entries.into_iter().enumerate().map(|(at, entry)| of_entry(at, &entry)).collect()
}

fn of_entry(at: usize, entry: &Value) -> Result<IstiodProxy, String> {
    let node = entry.get("node").unwrap_or(entry);
    if node.get("id").and_then(Value::as_str).is_none_or(|id| id.split('~').count() != 4) {
        return Err(format!(
            "entry {at} has no node whose id is TYPE~IP~NAME.NAMESPACE~DOMAIN, as in a bootstrap"
        ));
    }
    Ok(IstiodProxy {
        name: name_of(node),
        kind: String::new(),
        node: Some(node.clone()),
        listeners: entry.get("listeners").map(names).unwrap_or_default(),
        problem: None,
    })
}

fn names(list: &Value) -> Vec<String> {
    let names = list.as_array().into_iter().flatten();
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

impl IstiodProxy {
    /// Reason why a proxy of this kind is not compared.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        match self.kind.as_str() {
            "" | "sidecar" | "router" => Ok(()),
            kind => Err(format!("a {kind}, which belongs to ambient mode")),
        }
    }

    /// Node and listeners from istiod's page `/debug/adsz`.
    ///
    /// # Errors
    /// If the page does not have the proxy with its metadata.
    pub(super) fn of_adsz(&self, page: &Value) -> Result<(Value, Vec<String>), String> {
        let clients = page.get("clients").and_then(Value::as_array).into_iter().flatten();
        let id = |client: &Value| client.get("connectionId").and_then(Value::as_str).map(str::to_owned);
        // `web-0.shop-12`, or the whole node id with a number.
        let is_own = |id: &str| {
            let name = id.rsplit_once('-').map_or(id, |(name, _)| name);
            name.split('~').nth(2).unwrap_or(name) == self.name
        };
        let has_metadata = |client: &&Value| client.get("metadata").is_some_and(Value::is_object);
        let mut own = clients.filter(|client| id(client).is_some_and(|id| is_own(&id)));
        let client = own.find(has_metadata).ok_or("istiod's /debug/adsz does not have its metadata")?;
        let metadata = client.get("metadata").cloned().unwrap_or_default();
        let connection = id(client).unwrap_or_default();
        let whole = connection.rsplit_once('-').map(|(id, _)| id).filter(|id| id.split('~').count() == 4);
        let id = whole.map_or_else(|| self.node_id(&metadata, client), |id| Ok(id.to_owned()))?;
        let mut node = Map::from_iter([("id".to_owned(), Value::from(id))]);
        if let Some(locality) = client.get("locality").filter(|locality| locality.is_object()) {
            node.insert("locality".to_owned(), locality.clone());
        }
        node.insert("metadata".to_owned(), metadata);
        let watched = client.get("watches").and_then(|watches| watches.get(LISTENERS));
        // istiod lists the names; Pilotfish has them in an object.
        let listeners = watched.map(|watch| names(watch.get("names").unwrap_or(watch))).unwrap_or_default();
        Ok((node.into(), listeners))
    }

    /// Node id from its parts.
    fn node_id(&self, metadata: &Value, client: &Value) -> Result<String, String> {
        let ips = metadata.get("INSTANCE_IPS");
        let first = match ips {
            Some(Value::Array(ips)) => ips.first().and_then(Value::as_str),
            Some(Value::String(ips)) => ips.split(',').next(),
            _ => None,
        };
        let peer = client.get("address").and_then(Value::as_str).and_then(|address| address.rsplit_once(':'));
        let peer = peer.map(|(host, _)| host.trim_matches(['[', ']']));
        let ip = first.filter(|ip| !ip.is_empty()).or(peer).ok_or("its IP address is not known")?;
        let namespace = self.name.rsplit_once('.').map(|(_, namespace)| namespace);
        let namespace = namespace.ok_or("its name has no namespace")?;
        let kind = if self.kind.is_empty() { "sidecar" } else { &self.kind };
        Ok(format!("{kind}~{ip}~{}~{namespace}.{DOMAIN}", self.name))
    }
}

/// Leaves out the metadata of which istiod makes objects.
pub(super) fn without_writes(mut node: Value) -> Value {
    if let Some(metadata) = node.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in WRITES {
            metadata.remove(name);
        }
        if let Some(config) = metadata.get_mut("PROXY_CONFIG").and_then(Value::as_object_mut) {
            config.remove("readinessProbe");
        }
    }
    node
}

/// Marks a node: these connections are not those of the proxy.
pub(super) fn marked(mut node: Value) -> Value {
    if let Value::Object(fields) = &mut node {
        fields.insert("user_agent_name".to_owned(), Value::from(MARK.1));
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Value::Object(metadata) = metadata {
            metadata.insert(MARK.0.to_owned(), Value::from("true"));
        }
    }
    node
}

fn flag(node: &Value, name: &str, value: &str) -> bool {
    match node.get("metadata").and_then(|metadata| metadata.get(name)) {
        Some(Value::String(text)) => text.eq_ignore_ascii_case(value),
        Some(Value::Bool(flag)) => flag.to_string() == value,
        _ => false,
    }
}

/// True for a program with gRPC in the place of a proxy.
pub(super) fn is_grpc(node: &Value) -> bool {
    flag(node, "GENERATOR", "grpc")
}

/// True if the agent of the proxy answers DNS, and so asks for the name table.
pub(super) fn captures_dns(node: &Value) -> bool {
    flag(node, "DNS_CAPTURE", "true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_of_syncz_are_listed_once_by_name() {
        let page = json!([
            {"proxy": "web-1.shop", "proxy_type": "sidecar"}, {"proxy": "web-0.shop", "proxy_type": "SIDECAR"},
            {"proxy": "web-1.shop", "proxy_type": "sidecar"}, {"proxy": "way.shop", "proxy_type": "waypoint"}, {},
        ]);
        let proxies = of_syncz(&page);
        let names: Vec<_> = proxies.iter().map(|proxy| (&*proxy.name, proxy.check().is_ok())).collect();
        assert_eq!(names, [("way.shop", false), ("web-0.shop", true), ("web-1.shop", true)]);
    }

    #[test]
    fn nodes_are_put_together_from_the_pages_of_istiod() {
        let proxy = of_syncz(&json!([{"proxy": "web-0.shop", "proxy_type": "router"}])).remove(0);
        let metadata = json!({"INSTANCE_IPS": "10.0.0.1,fd00::1", "NAMESPACE": "shop"});
        let page = json!({"clients": [
            {"connectionId": "web-0.shop-v2-7", "metadata": {"NAME": "other"}},
            {"connectionId": "web-0.shop-12", "address": "10.9.9.9:4", "metadata": metadata,
             "locality": {"region": "r"}, "watches": {LISTENERS: ["a:80"]}},
        ]});
        let (node, listeners) = proxy.of_adsz(&page).unwrap();
        let expected = json!({"id": "router~10.0.0.1~web-0.shop~shop.svc.cluster.local",
            "locality": {"region": "r"}, "metadata": metadata});
        assert_eq!((node, listeners), (expected, vec!["a:80".to_owned()]));
        let none = json!({"clients": [{"connectionId": "web-0.shop-12"}]});
        assert!(proxy.of_adsz(&none).unwrap_err().contains("does not have its metadata"));
    }

    #[test]
    fn node_ids_in_the_page_are_used_as_they_are() {
        let proxy = of_syncz(&json!([{"proxy": "web-0.shop", "proxy_type": "sidecar"}])).remove(0);
        let id = "sidecar~10.0.0.1~web-0.shop~shop.svc.example.org";
        let client = json!({"connectionId": format!("{id}-3"), "metadata": {},
            "watches": {LISTENERS: {"wildcard": false, "names": ["b:80"]}}});
        let (node, listeners) = proxy.of_adsz(&json!({"clients": [client]})).unwrap();
        assert_eq!((&node["id"], listeners), (&Value::from(id), vec!["b:80".to_owned()]));
    }

    #[test]
    fn files_have_nodes_or_objects_with_nodes() {
        let text = "- id: sidecar~10.0.0.1~web-0.shop~shop.svc.cluster.local\n\
                    - {node: {id: sidecar~10.0.0.2~job-0.shop~x, metadata: {GENERATOR: grpc}}, listeners: [a:80]}\n";
        let proxies = of_file(text.as_bytes()).unwrap();
        let names: Vec<_> = proxies.iter().map(|proxy| (&*proxy.name, proxy.listeners.len())).collect();
        assert_eq!(names, [("web-0.shop", 0), ("job-0.shop", 1)]);
        assert!(is_grpc(proxies[1].node.as_ref().unwrap()));
        assert!(of_file(b"- {id: web-0}").unwrap_err().contains("entry 0 has no node"));
    }

    #[test]
    fn istiod_registers_nothing_for_a_marked_node() {
        let node = json!({"id": "sidecar~10.0.0.1~vm.shop~x", "metadata": {
            "AUTO_REGISTER_GROUP": "vms", "WORKLOAD_ENTRY": "vm", "NAMESPACE": "shop",
            "PROXY_CONFIG": {"readinessProbe": {}, "concurrency": 2}}});
        let node = without_writes(node);
        assert_eq!(node["metadata"], json!({"NAMESPACE": "shop", "PROXY_CONFIG": {"concurrency": 2}}));
        let marked = marked(node.clone());
        assert_eq!((&marked["id"], &marked["user_agent_name"]), (&node["id"], &MARK.1.into()));
        assert_eq!(marked["metadata"][MARK.0], "true");
    }
}
