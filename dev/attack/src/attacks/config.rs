//! Configuration that multiplies, from a tenant who may write objects of its namespace, for its own proxies.
//! Objects that a tenant exports affect all proxies; the configuration of its own proxies must not cost
//! others anything.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use pilotfish_bench::messages::{CDS, RDS};
use pilotfish_testkit::real::fetch;

use crate::dialer::{DELTA, Dialer};
use crate::extra::Extra;
use crate::wire::{Node, delta};
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "delegates",
        what: "A VirtualService with 1,500 routes that delegate to one with 1,500",
        run: |target, deadline| write(target, deadline, delegates).boxed(),
    },
    Attack {
        name: "hosts-by-routes",
        what: "A VirtualService with 1,000 hosts and 1,000 routes",
        run: |target, deadline| write(target, deadline, hosts_by_routes).boxed(),
    },
    Attack {
        name: "multiplied-endpoints",
        what: "60 ServiceEntries of 5 KiB, each of 400 hosts, 20 ports and 24 endpoints, of which ten change \
            again and again",
        run: |target, deadline| write(target, deadline, multiplied_endpoints).boxed(),
    },
    Attack {
        name: "multiplied-exports",
        what: "60 ServiceEntries of 400 hosts, each exported to 500 namespaces, of which ten change again and again",
        run: |target, deadline| write(target, deadline, multiplied_exports).boxed(),
    },
    Attack {
        name: "yaml-aliases",
        what: "A file of YAML whose aliases stand for gigabytes",
        run: |target, deadline| write(target, deadline, yaml_aliases).boxed(),
    },
    Attack {
        name: "name-chains",
        what: "2,000 Services that are names of one another, changed again and again",
        run: |target, deadline| write(target, deadline, name_chains).boxed(),
    },
    Attack {
        name: "long-regexes",
        what: "Routes that match by expressions of a megabyte of open braces",
        run: |target, deadline| write(target, deadline, long_regexes).boxed(),
    },
];

/// Namespace of the tenant.
const TENANT: &str = "tenant";
/// Interval between two versions of the file.
const BETWEEN: Duration = Duration::from_secs(3);

/// Writes consecutive versions of a file, and reads the result as a proxy. The file is removed at the end.
async fn write(target: Arc<Target>, deadline: Deadline, text: fn(usize) -> String) -> Result<Tally> {
    let counts = Counts::new();
    let extra = Extra::new(&target.config, "attack.yaml");
    let versions = async {
        for version in 0.. {
            let text = text(version);
            extra.write(&text)?;
            counts.sent(text.len());
            tokio::time::sleep(BETWEEN).await;
            // The page of configuration problems must respond as well.
            match fetch(&format!("http://{}/debug/problemz", target.admin)).await {
                Ok(page) if page.contains("attack") => counts.refused("a problem is told"),
                Ok(_) => counts.answered(),
                Err(error) => counts.refused(error),
            }
        }
        Ok(())
    };
    let asks = super::crowd(4, deadline, &counts, {
        let (counts, dialer) = (counts.clone(), Dialer::plaintext(&target));
        move |index| {
            let (counts, dialer) = (counts.clone(), dialer.clone());
            async move {
                let node = Node::numbered(index).in_namespace(TENANT);
                let routes = delta(None, RDS, &["80".to_owned()], &[]);
                let first = vec![delta(Some(&node), CDS, &[], &[]).into(), routes.into()];
                let mut stream = dialer.stream(DELTA, &[], first).await?;
                while stream.next().await?.is_some() {
                    counts.answered();
                }
                Ok(())
            }
        }
    });
    let (written, ()) = tokio::join!(deadline.cut(versions), asks);
    written.unwrap_or(Ok::<(), anyhow::Error>(()))?;
    Ok(counts.tally())
}

fn object(kind: &str, name: &str) -> String {
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: {kind}\n\
         metadata: {{name: {name}, namespace: {TENANT}}}\nspec:\n  exportTo: [.]\n"
    )
}

fn delegates(version: usize) -> String {
    const ROUTES: usize = 1_500;
    let mut text = object("VirtualService", "attack");
    text.push_str("  hosts: [svc-1.bench.svc.cluster.local]\n  http:\n");
    for n in 0..ROUTES {
        let _ = writeln!(
            text,
            "  - {{match: [{{uri: {{prefix: /v{version}/{n}/}}}}], delegate: {{name: attack-delegate}}}}"
        );
    }
    text.push_str(&object("VirtualService", "attack-delegate"));
    text.push_str("  http:\n");
    for n in 0..ROUTES {
        let _ = writeln!(
            text,
            "  - {{match: [{{headers: {{a: {{exact: '{n}'}}}}}}], route: [{{destination: {{host: \
             svc-2.bench.svc.cluster.local}}}}]}}"
        );
    }
    text
}

fn hosts_by_routes(version: usize) -> String {
    const EACH: usize = 1_000;
    let mut text = object("VirtualService", "attack");
    text.push_str("  hosts:\n");
    for n in 0..EACH {
        let _ = writeln!(text, "  - h{n}.v{version}.attack.example.com");
    }
    text.push_str("  http:\n");
    for n in 0..EACH {
        let _ = writeln!(
            text,
            "  - {{match: [{{uri: {{prefix: /{n}/}}}}], route: [{{destination: {{host: \
             svc-2.bench.svc.cluster.local}}}}]}}"
        );
    }
    text
}

fn multiplied_endpoints(version: usize) -> String {
    (0..60).map(|entry| multiplied_entry(entry, if entry < 10 { version } else { 0 })).collect()
}

/// A ServiceEntry with hosts, ports and endpoints that multiply to nearly the maximum of one object.
pub(super) fn multiplied_entry(entry: usize, version: usize) -> String {
    let mut text = object("ServiceEntry", &format!("attack-{entry}"));
    text.push_str("  resolution: STATIC\n  hosts: [");
    for host in 0..400 {
        let _ = write!(text, "h{host}.e{entry}.io,");
    }
    text.push_str("]\n  ports: [");
    for port in 1..=20 {
        let _ = write!(text, "{{number: {port}, name: tcp-{port}, protocol: TCP}},");
    }
    text.push_str("]\n  endpoints: [");
    for endpoint in 0..24 {
        let _ = write!(text, "{{address: 10.{}.{entry}.{endpoint}}},", version % 250);
    }
    text.push_str("]\n");
    text
}

fn multiplied_exports(version: usize) -> String {
    let namespaces: String = (0..500).map(|n| format!("n{n},")).collect();
    let entry = |entry: usize| {
        let hosts: String = (0..400).map(|host| format!("h{host}.x{entry}.io,")).collect();
        let port = if entry < 10 { 80 + version % 250 } else { 80 };
        format!(
            "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\n\
             metadata: {{name: export-{entry}, namespace: {TENANT}}}\nspec:\n  resolution: DNS\n  \
             ports: [{{number: {port}, name: http, protocol: HTTP}}]\n  hosts: [{hosts}]\n  \
             exportTo: [{namespaces}]\n"
        )
    };
    (0..60).map(entry).collect()
}

fn yaml_aliases(version: usize) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: attack-{version}, namespace: {TENANT}}}\ndata:\n"
    );
    let _ = writeln!(text, "  a: &a {}", "x".repeat(1 << 20));
    for n in 0..20_000 {
        let _ = writeln!(text, "  k{n}: *a");
    }
    text
}

fn name_chains(version: usize) -> String {
    const LINKS: usize = 2_000;
    let mut text = String::new();
    for n in 0..LINKS {
        // In every other version, the last one leads to the first.
        let next = if n + 1 < LINKS {
            format!("attack-{}", n + 1)
        } else {
            format!("attack-{}", version % 2 * LINKS)
        };
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: attack-{n}\n  namespace: {TENANT}\n  \
             annotations: {{networking.istio.io/exportTo: .}}\nspec:\n  type: ExternalName\n  \
             externalName: {next}.{TENANT}.svc.cluster.local\n  ports: [{{name: http, port: 80}}]\n"
        );
    }
    text
}

fn long_regexes(version: usize) -> String {
    let mut text = object("VirtualService", "attack");
    text.push_str("  hosts: [svc-1.bench.svc.cluster.local]\n  http:\n");
    for n in 0..4 {
        let regex = format!("/{version}/{n}{}", "{".repeat(1 << 20));
        let _ = writeln!(
            text,
            "  - {{match: [{{uri: {{regex: '{regex}'}}}}], route: [{{destination: {{host: \
             svc-2.bench.svc.cluster.local}}}}]}}"
        );
    }
    text
}
