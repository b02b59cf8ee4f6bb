//! All resources that a proxy was sent: the control plane limits the bytes of one response.

use crate::client::Client;
use crate::error::CliError;
use pilotfish_api::v1::ProxyConfig;

/// Maximum number of pages: each has some MiB.
const PAGES: usize = 1_000;
/// Maximum number of attempts, if the configuration changes between two pages.
const TRIES: usize = 5;

/// Reads all pages of one revision.
///
/// # Errors
/// If a request fails, or no attempt reads a complete revision.
pub(in crate::commands) async fn whole(
    client: &Client,
    path: &str,
    query: &[(&str, &str)],
) -> Result<ProxyConfig, CliError> {
    for _ in 0..TRIES {
        if let Some(config) = one_revision(client, path, query).await? {
            return Ok(config);
        }
    }
    Err(CliError::new(format!("what the proxy was sent has changed {TRIES} times while it was read"))
        .hint("a type and a name narrow it: pilotfish config PROXY clusters NAME --diff ..."))
}

/// Reads all pages; `None` if the configuration changes in between.
async fn one_revision(
    client: &Client,
    path: &str,
    query: &[(&str, &str)],
) -> Result<Option<ProxyConfig>, CliError> {
    let mut config: ProxyConfig = client.get(path, query).await?;
    for _ in 0..PAGES {
        if !config.truncated {
            return Ok(Some(config));
        }
        let offset = config.resources.len().to_string();
        let mut query = query.to_vec();
        query.push(("offset", &offset));
        let page: ProxyConfig = client.get(path, &query).await?;
        if page.revision != config.revision || page.total != config.total {
            return Ok(None);
        }
        // An empty page ends the list.
        if page.resources.is_empty() {
            break;
        }
        config.truncated = page.truncated;
        config.resources.extend(page.resources);
    }
    let (count, total) = (config.resources.len(), config.total);
    Err(CliError::new(format!("only {count} of {total} resources could be read, and nothing was compared"))
        .hint("a type and a name narrow it: pilotfish config PROXY clusters NAME --diff ..."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::testing::server;
    use pilotfish_api::v1::{ConfigResource, Section};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A page of two of five resources, of this revision.
    fn page(target: &str, revision: u64) -> String {
        let offset = target.split_once("offset=").map_or(0, |(_, offset)| offset.parse().unwrap());
        let resource = |at: usize| ConfigResource {
            section: Section::Clusters,
            name: at.to_string(),
            version: String::new(),
            made_by: Vec::new(),
            left_out: Vec::new(),
            resource: serde_json::Value::Null,
        };
        let resources: Vec<_> = (offset..5).take(2).map(resource).collect();
        let truncated = offset + resources.len() < 5;
        let config = ProxyConfig { revision, resources, total: 5, truncated, ..ProxyConfig::default() };
        serde_json::to_string(&config).unwrap()
    }

    #[tokio::test]
    async fn all_pages_are_read() {
        let client = server(|target| page(target, 7)).await;
        let config = whole(&client, "x", &[("full", "true")]).await.unwrap();
        let names: Vec<&str> = config.resources.iter().map(|resource| resource.name.as_str()).collect();
        assert_eq!((names, config.truncated), (vec!["0", "1", "2", "3", "4"], false));
    }

    #[tokio::test]
    async fn pages_of_two_revisions_are_no_answer() {
        let asked = AtomicU64::new(0);
        // It changes once.
        let client = server(move |target| page(target, asked.fetch_add(1, Ordering::Relaxed).min(1))).await;
        let config = whole(&client, "x", &[]).await.unwrap();
        assert_eq!((config.revision, config.resources.len()), (1, 5));
        let asked = AtomicU64::new(0);
        let client = server(move |target| page(target, asked.fetch_add(1, Ordering::Relaxed))).await;
        let error = whole(&client, "x", &[]).await.unwrap_err().to_string();
        assert!(error.contains("has changed 5 times"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_brings_no_more_is_an_error() {
        let client = server(|target| page(if target.contains("offset") { "offset=5" } else { target }, 7));
        let client = client.await;
        let text = r#"only 2 of 5 resources could be read"#;
        // The page behind the last one is empty.
        let error = whole(&client, "x", &[]).await.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}
