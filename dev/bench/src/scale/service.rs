//! One Service with 10,000 endpoints: a change of one of them must not cost several passes over all.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{
    BETWEEN_ROUNDS, Bar, NAMESPACE, Options, ROUND_LIMIT, Rounds, SETTLE, Setup, WARM_UP, address, bar,
};

/// Number of EndpointSlices with at most 100 endpoints each, as in Kubernetes.
const SLICES: usize = 100;
const SLICE: usize = 100;
const NAME: &str = "vast";
/// Maximum CPU time of the server for a change, in milliseconds.
const CPU_MS: f64 = 20.0;

pub(super) async fn run(options: &Options) -> Result<Vec<Bar>> {
    let setup = Setup::start_with(options, 10, 2, &[], create).await?;
    let fleet = setup.fleet(std::iter::repeat_n(NAMESPACE, 1), 0).await?;
    tokio::time::sleep(SETTLE).await;
    let (folder, mut rounds) = (setup.folder(), Rounds::default());
    for number in 0..WARM_UP + options.rounds {
        let address = address(number);
        let before = setup.server.cpu()?;
        let trigger = async { slice(&folder, number % SLICES, Some(&address)) };
        let reached = fleet.round(number, &address, 1, trigger, ROUND_LIMIT).await?;
        tokio::time::sleep(BETWEEN_ROUNDS).await;
        rounds.last.push(reached.last);
        rounds.cpu.push(setup.server.cpu()?.since(&before));
    }
    rounds.forget(WARM_UP);
    eprintln!("bench:   median {:.1} ms, p99 {:.1} ms", rounds.at(0.5), rounds.at(0.99));
    Ok(vec![bar(
        format!("one of {} endpoints of a Service changes: server CPU", SLICES * SLICE),
        rounds.cpu(),
        CPU_MS,
        "ms",
    )])
}

fn create(folder: &Path) -> Result<()> {
    let service = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {NAME}, namespace: {NAMESPACE}}}\nspec:\n  \
         clusterIP: 10.99.0.1\n  selector: {{app: {NAME}}}\n  ports:\n  \
         - {{name: http, port: 80, targetPort: 8080, protocol: TCP}}\n"
    );
    let path = folder.join("vast.yaml");
    fs::write(&path, service).with_context(|| format!("cannot write {}", path.display()))?;
    (0..SLICES).try_for_each(|index| slice(folder, index, None))
}

/// Writes an EndpointSlice with a new address of its first endpoint.
fn slice(folder: &Path, index: usize, first: Option<&str>) -> Result<()> {
    let mut text = format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {NAME}-{index}\n  \
         namespace: {NAMESPACE}\n  labels: {{kubernetes.io/service-name: {NAME}}}\naddressType: IPv4\n\
         ports:\n- {{name: http, port: 8080, protocol: TCP}}\nendpoints:\n"
    );
    for k in 0..SLICE {
        let own = format!("10.240.{index}.{}", k + 1);
        let address = first.filter(|_| k == 0).unwrap_or(&own);
        let _ = writeln!(text, "- {{addresses: [{address}], conditions: {{ready: true}}}}");
    }
    let path = folder.join(format!("vast-{index}.yaml"));
    let new = path.with_extension("new");
    fs::write(&new, text).with_context(|| format!("cannot write {}", new.display()))?;
    fs::rename(&new, &path).with_context(|| format!("cannot replace {}", path.display()))
}
