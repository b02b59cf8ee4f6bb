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
    let page = async |offset: usize| {
        let offset = (offset > 0).then(|| offset.to_string());
        let mut query = query.to_vec();
        query.extend(offset.as_deref().map(|offset| ("offset", offset)));
        client.get(path, &query).await
    };
    let hint = "a type and a name narrow it: pilotfish config PROXY clusters NAME --diff ...";
    pages(page).await.map_err(|error| if error.has_hint() { error } else { error.hint(hint) })
}

/// Reads all pages of one revision; `page` requests the resources from an offset.
///
/// # Errors
/// As [`whole`].
pub(in crate::commands) async fn pages(
    page: impl AsyncFn(usize) -> Result<ProxyConfig, CliError>,
) -> Result<ProxyConfig, CliError> {
    for _ in 0..TRIES {
        if let Some(config) = one_revision(&page).await? {
            return Ok(config);
        }
    }
    Err(CliError::new(format!("what the proxy was sent has changed {TRIES} times while it was read")))
}

/// Reads all pages; `None` if the configuration changes in between.
async fn one_revision(
    page: &impl AsyncFn(usize) -> Result<ProxyConfig, CliError>,
) -> Result<Option<ProxyConfig>, CliError> {
    let mut config = page(0).await?;
    for _ in 0..PAGES {
        if !config.truncated {
            return Ok(Some(config));
        }
        let next = page(config.resources.len()).await?;
        if next.revision != config.revision || next.total != config.total {
            return Ok(None);
        }
        // An empty page ends the list.
        if next.resources.is_empty() {
            break;
        }
        config.truncated = next.truncated;
        config.resources.extend(next.resources);
    }
    let (count, total) = (config.resources.len(), config.total);
    Err(CliError::new(format!("only {count} of {total} resources could be read, and nothing was compared")))
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
