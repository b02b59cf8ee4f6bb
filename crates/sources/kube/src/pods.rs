//! All Pods of a cluster, page by page.

use crate::client::Client;
use crate::request::{RequestError, within};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use std::time::Duration;

/// Timeout of a page.
const ANSWER: Duration = Duration::from_secs(30);
/// Number of Pods of a page.
const PAGE: u32 = 500;

/// Calls a function with each Pod of a cluster. At most one page is in memory.
///
/// # Errors
/// When the API server refuses or does not answer. Some Pods may have been passed on already.
pub async fn each_pod(client: Client, each: &mut (dyn FnMut(Pod) + Send)) -> Result<(), RequestError> {
    let api: Api<Pod> = Api::all(client);
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = within(ANSWER, api.list(&params)).await?;
        let next = page.metadata.continue_.unwrap_or_default();
        page.items.into_iter().for_each(&mut *each);
        if next.is_empty() {
            return Ok(());
        }
        params = params.continue_token(&next);
    }
}
