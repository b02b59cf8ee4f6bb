//! Paths of questions.

use crate::schedule::{Ask, Question};
use crate::settings::{Consistency, QueryOptions};
use form_urlencoded::Serializer;
use std::fmt::Write as _;

/// Filter that matches no instance: the response is short, and its index is that of the service.
const NOTHING: &str = "Service.ID == \"\"";

/// Returns path and query of a question, relative to the path of the address.
pub(crate) fn path(
    base: &str,
    question: &Question,
    datacenters: &[Option<String>],
    options: &QueryOptions,
    consistency: Consistency,
) -> String {
    let mut path = format!("{base}/v1/");
    let mut query = Serializer::new(String::new());
    match &question.ask {
        Ask::Names(_) => path.push_str("catalog/services"),
        Ask::Checks(_, state) => {
            path.push_str("health/state/");
            path.push_str(state.name());
        }
        Ask::Watch(key) | Ask::Fetch(key) | Ask::Probe(key) => {
            path.push_str("health/service/");
            push_encoded(&mut path, &key.name);
            for tag in &options.tags {
                query.append_pair("tag", tag);
            }
        }
    }
    let filter = match &question.ask {
        Ask::Probe(_) => Some(NOTHING),
        Ask::Watch(_) | Ask::Fetch(_) => options.filter.as_deref(),
        _ => None,
    };
    if let Some(filter) = filter {
        query.append_pair("filter", filter);
    }
    for pair in &options.node_meta {
        query.append_pair("node-meta", pair);
    }
    if let Some(Some(datacenter)) = datacenters.get(question.ask.datacenter()) {
        query.append_pair("dc", datacenter);
    }
    match consistency {
        Consistency::Stale => {
            query.append_key_only("stale");
        }
        Consistency::Default => {}
        Consistency::Consistent => {
            query.append_key_only("consistent");
        }
    }
    if question.index > 0 {
        query.append_pair("index", &question.index.to_string());
        query.append_pair("wait", &format!("{}ms", question.wait.as_millis().max(1)));
    }
    let query = query.finish();
    if !query.is_empty() {
        path.push('?');
        path.push_str(&query);
    }
    path
}

/// Appends a name, percent-encoded as one path segment.
fn push_encoded(path: &mut String, name: &str) {
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Key;
    use crate::triggers::CheckState;
    use std::time::Duration;

    #[test]
    fn questions_are_paths() {
        let plain = QueryOptions {
            consistency: Consistency::Stale,
            max_stale: Duration::from_secs(10),
            filter: None,
            node_meta: Vec::new(),
            tags: Vec::new(),
        };
        let picky = QueryOptions {
            filter: Some("Service.Meta.env == \"qa\"".to_owned()),
            node_meta: vec!["rack:r1".to_owned()],
            tags: vec!["a b".to_owned(), "c".to_owned()],
            ..plain.clone()
        };
        let key = |datacenter, name: &str| Key { datacenter, name: name.into() };
        let cases = [
            (Ask::Names(0), 0, &plain, Consistency::Default, "/v1/catalog/services"),
            (Ask::Names(0), 7, &plain, Consistency::Stale, "/v1/catalog/services?stale&index=7&wait=1500ms"),
            (
                Ask::Names(1),
                0,
                &picky,
                Consistency::Default,
                "/v1/catalog/services?node-meta=rack%3Ar1&dc=dc2",
            ),
            (
                Ask::Checks(1, CheckState::Critical),
                9,
                &plain,
                Consistency::Consistent,
                "/v1/health/state/critical?dc=dc2&consistent&index=9&wait=1500ms",
            ),
            (Ask::Fetch(key(0, "a/b c")), 0, &plain, Consistency::Default, "/v1/health/service/a%2Fb%20c"),
            (
                Ask::Watch(key(0, "web")),
                3,
                &picky,
                Consistency::Default,
                "/v1/health/service/web?tag=a+b&tag=c&filter=Service.Meta.env+%3D%3D+%22qa%22&node-meta=rack%3Ar1&index=3&wait=1500ms",
            ),
            (
                Ask::Probe(key(0, "web")),
                0,
                &plain,
                Consistency::Default,
                "/v1/health/service/web?filter=Service.ID+%3D%3D+%22%22",
            ),
        ];
        for (ask, index, options, consistency, want) in cases {
            let question = Question { ask, index, wait: Duration::from_millis(1500), listing: 0 };
            let datacenters = [None, Some("dc2".to_owned())];
            assert_eq!(path("", &question, &datacenters, options, consistency), want);
        }
    }
}
