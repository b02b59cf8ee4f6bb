//! Simulated operator who reads the dashboard and edits YAML during an attack.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::extra::Extra;
use crate::mesh::Mesh;

/// Delay before a refused page is reloaded, and interval of checks for the effect of an edit.
const AGAIN: Duration = Duration::from_millis(100);
/// Name of the edited object.
const EDITED: &str = "edited-by-hand";
/// Requests of dashboard pages, in a mesh of many services.
const PAGES: [&str; 12] = [
    "/dashboard/",
    "/api/v1/overview",
    "/api/v1/map",
    "/api/v1/services?sort=health&limit=50",
    "/api/v1/service?namespace=bench&host=svc-1.bench.svc.cluster.local",
    "/api/v1/endpoints?host=svc-1.bench.svc.cluster.local&exact=true&limit=50",
    "/api/v1/proxies?limit=50",
    "/api/v1/registries",
    "/api/v1/problems?limit=50",
    "/api/v1/objects?name=svc-1&limit=6",
    "/api/v1/history?limit=20",
    "/api/v1/samples",
];

pub(crate) struct Operator {
    pages: Vec<String>,
    next: AtomicUsize,
    edits: AtomicUsize,
    file: Extra,
}

impl Operator {
    /// Creates an operator who also views one of the proxies.
    pub(crate) async fn new(mesh: &Mesh) -> Result<Self> {
        let (_, proxies) = mesh.answer("/api/v1/proxies?limit=1").await?;
        let proxies: Value = serde_json::from_str(&proxies).context("the list of proxies is no JSON")?;
        let proxy =
            proxies.pointer("/items/0/name").and_then(Value::as_str).context("no proxy has a name")?;
        let proxy = utf8_percent_encode(proxy, NON_ALPHANUMERIC);
        let of_proxy = [
            format!("/api/v1/proxies/{proxy}"),
            format!("/api/v1/why?proxy={proxy}&to=svc-1.bench.svc.cluster.local:80"),
        ];
        let pages = PAGES.into_iter().map(str::to_owned).chain(of_proxy).collect();
        let file = Extra::new(&mesh.target.config, "edited.yaml");
        Ok(Self { pages, next: AtomicUsize::new(0), edits: AtomicUsize::new(0), file })
    }

    /// Loads every page and makes both kinds of edits, before any attack.
    pub(crate) async fn warm_up(&self, mesh: &Mesh, limit: Duration) -> Result<()> {
        for _ in &self.pages {
            self.read(mesh, limit).await?;
        }
        for _ in 0..2 {
            self.edit(mesh, limit).await?;
        }
        Ok(())
    }

    /// Loads the next page, again if it is refused because of others. Returns the time until it was loaded.
    pub(crate) async fn read(&self, mesh: &Mesh, limit: Duration) -> Result<Duration> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let page = self.pages.get(next % self.pages.len()).context("no pages")?;
        let began = Instant::now();
        let there = async {
            loop {
                match mesh.answer(page).await? {
                    (200, _) => return Ok(began.elapsed()),
                    (503, _) => sleep(AGAIN).await,
                    (status, text) => anyhow::bail!("{page}: {status}: {text}"),
                }
            }
        };
        tokio::time::timeout(limit, there)
            .await
            .with_context(|| format!("{page}: not there after {limit:?}"))?
    }

    /// Saves a route to a nonexistent host, or fixes it. Returns the time until the list of problems reflects
    /// that.
    pub(crate) async fn edit(&self, mesh: &Mesh, limit: Duration) -> Result<Duration> {
        let number = self.edits.fetch_add(1, Ordering::Relaxed);
        let is_wrong = number.is_multiple_of(2);
        self.file.write(&route(number, if is_wrong { "svc-one" } else { "svc-1" }))?;
        let began = Instant::now();
        let page = format!("/api/v1/problems?name={EDITED}");
        let told = async {
            loop {
                let (status, text) = mesh.answer(&page).await?;
                ensure!(matches!(status, 200 | 503), "{page}: {status}: {text}");
                if status == 200 && text.contains("svc-one") == is_wrong {
                    return Ok(began.elapsed());
                }
                sleep(AGAIN).await;
            }
        };
        let what = if is_wrong { "a mistake" } else { "its correction" };
        tokio::time::timeout(limit, told)
            .await
            .with_context(|| format!("{what}: not told after {limit:?}"))?
    }
}

/// A route in the proxies' namespace that no request matches.
fn route(number: usize, service: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\n\
         metadata: {{name: {EDITED}, namespace: bench}}\nspec:\n  hosts: [edited.example.com]\n  http:\n  \
         - timeout: {}s\n    route: [{{destination: {{host: {service}.bench.svc.cluster.local}}}}]\n",
        number % 10 + 1
    )
}
