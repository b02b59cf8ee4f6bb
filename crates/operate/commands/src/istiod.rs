//! Resources that istiod sends to a node, for `pilotfish compare --istiod`.

use super::bench;
use pilotfish_api::v1::Section;
use pilotfish_cli::{IstiodAnswer, IstiodCredential, IstiodQuestion, IstiodReading};
use pilotfish_compare::references;
use pilotfish_connect::TlsOptions;
use pilotfish_explain::{json, section};
use pilotfish_load::connection::Way;
use pilotfish_load::messages::Any;
use pilotfish_load::reader::{self, Question, ReadLimits, Reading};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::{ResourceType, from_json};
use prost::Message;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// Time without a response after which names that istiod has not answered count as absent.
const QUIET: Duration = Duration::from_secs(1);

/// Reads all resources of a node.
#[must_use]
pub fn read(question: IstiodQuestion) -> IstiodReading {
    Box::pin(async move {
        let node: Node = from_json(&question.node).map_err(|error| format!("its node: {error}"))?;
        let way = way(&question).await?;
        let limits = ReadLimits { bytes: question.bytes, time: question.timeout, quiet: QUIET };
        let is_grpc = !question.listeners.is_empty();
        let mut refers = |type_url: &str, resource: &Any| referred(type_url, resource, is_grpc);
        let reading = reader::read(&way, first(&question, &node), &mut refers, &limits).await;
        Ok(answer(reading.map_err(|error| format!("{error:#}"))?))
    })
}

/// Plaintext, or TLS with the credential of the workload.
async fn way(question: &IstiodQuestion) -> Result<Way, String> {
    let Some(credential) = &question.credential else {
        return Ok(Way::plain(resolved(&question.address).await?));
    };
    let IstiodCredential { ca_file, server_name, authorization } = credential;
    let tls = TlsOptions::new(Some(ca_file.clone()), None, Some(server_name.clone())).with_alpn(&["h2"]);
    let headers = vec![("authorization".to_owned(), authorization.clone())];
    bench::way(&question.address, Some(tls), headers).map_err(|error| format!("{error:#}"))
}

async fn resolved(address: &str) -> Result<SocketAddr, String> {
    let mut found = tokio::net::lookup_host(address).await.map_err(|error| format!("{address}: {error}"))?;
    found.next().ok_or_else(|| format!("{address} has no IP address"))
}

/// Node with its first subscriptions.
fn first(question: &IstiodQuestion, node: &Node) -> Question {
    let url = |ty: ResourceType| ty.type_url().to_owned();
    let mut first = reader::Names::new();
    first.insert(url(ResourceType::Listener), question.listeners.iter().cloned().collect());
    if question.listeners.is_empty() {
        first.insert(url(ResourceType::Cluster), BTreeSet::new());
    }
    if question.has_names {
        first.insert(url(ResourceType::NameTable), BTreeSet::new());
    }
    let optional = [ResourceType::ExtensionConfig, ResourceType::NameTable].map(url).into();
    Question { node: node.encode_to_vec().into(), first, optional }
}

/// Names that a resource refers to, by type URL. Envoys subscribe to all clusters.
fn referred(type_url: &str, resource: &Any, is_grpc: bool) -> Vec<(String, String)> {
    let Some(kind) = ResourceType::from_type_url(type_url).map(section) else { return Vec::new() };
    let refers = matches!(kind, Section::Clusters | Section::Listeners) || is_grpc && kind == Section::Routes;
    if !refers {
        return Vec::new();
    }
    let of = |(kind, name): (&str, String)| {
        let ty = ResourceType::ALL.into_iter().find(|ty| section(*ty).as_str() == kind)?;
        (is_grpc || ty != ResourceType::Cluster).then(|| (ty.type_url().to_owned(), name))
    };
    let resource = json(&resource.encode_to_vec());
    references(kind.as_str(), &resource).into_iter().filter_map(of).collect()
}

fn answer(reading: Reading) -> IstiodAnswer {
    let section = |type_url: &str| ResourceType::from_type_url(type_url).map(section);
    let resource = |((type_url, name), resource): ((String, String), Any)| {
        Some((section(&type_url)?, name, json(&resource.encode_to_vec())))
    };
    let names = |(type_url, names): (String, BTreeSet<String>)| {
        Some((section(&type_url)?, names.into_iter().collect()))
    };
    IstiodAnswer {
        resources: reading.resources.into_iter().filter_map(resource).collect(),
        names: reading.names.into_iter().filter_map(names).collect(),
    }
}
