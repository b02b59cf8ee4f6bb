//! Registration over mutual TLS by known clients, and by clients of another trust domain.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use pilotfish_testkit::real::free_port;
use tempfile::TempDir;

use super::REST;
use super::http1::{ask, json};
use crate::dialer::Dialer;
use crate::mesh::{in_memory, loopback};
use crate::own::Own;
use crate::{Attack, Counts, Deadline, Tally, Target};

pub(super) const ATTACKS: &[Attack] = &[Attack {
    name: "registration-rights",
    what: "Registrations over mutual TLS: in other namespaces, for services that objects have, and as an \
        account of another trust domain",
    run: |target, deadline| rights(target, deadline).boxed(),
}];

/// Objects whose services must not be taken over by registrations.
const OBJECTS: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: taken, namespace: bench}\n\
    spec: {ports: [{port: 80}]}\n---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\n\
    metadata: {name: entry, namespace: shop}\nspec:\n  hosts: [entry.bench.svc.cluster.local]\n  \
    resolution: STATIC\n  ports: [{number: 80, name: http, protocol: HTTP}]\n  \
    endpoints: [{address: 192.0.2.9}]\n";

/// Rules that let both clients register, without restricting service accounts.
const RULES: &str = "rules:\n- identities: ['spiffe://cluster.local/*', 'spiffe://foreign.example/*']\n  \
    namespaces: [bench]\n  actions: [register]\n";

/// Clients of the registration API, by certificate.
#[derive(Clone, Copy, Debug)]
enum From {
    /// The workload `bench/stranger` of the mesh.
    Stranger,
    /// A workload of that name in another trust domain.
    Foreign,
    /// A client without a certificate.
    Nobody,
}

/// A registration: client, namespace, service, service account, and the expected status.
type Case = (From, &'static str, &'static str, &'static str, u16);

const WITHOUT_RULES: [Case; 10] = [
    (From::Stranger, "bench", "web", "", 200),
    (From::Stranger, "bench", "web", "stranger", 200),
    (From::Stranger, "bench", "web", "default", 403),
    (From::Stranger, "shop", "web", "", 403),
    (From::Stranger, "bench", "taken", "", 403),
    (From::Stranger, "bench", "entry", "", 403),
    (From::Stranger, "bench", "web.example.com", "", 403),
    (From::Foreign, "bench", "web", "", 403),
    (From::Foreign, "bench", "web", "stranger", 403),
    (From::Nobody, "bench", "web", "", 401),
];

/// The account of the foreign client has the name of the stranger's, and is another one.
const WITH_RULES: [Case; 4] = [
    (From::Foreign, "bench", "web", "", 200),
    (From::Foreign, "bench", "web", "stranger", 403),
    (From::Foreign, "bench", "web", "default", 403),
    (From::Foreign, "shop", "web", "", 403),
];

/// A Pilotfish with registration over mutual TLS.
struct Registration {
    own: Own,
    address: SocketAddr,
    _folder: TempDir,
}

impl Registration {
    async fn start(target: &Target, rules: Option<&str>) -> Result<Self> {
        let (folder, address) = (in_memory()?, loopback(free_port()));
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut arguments =
            vec!["--registration-address".to_owned(), address.to_string(), "--data-dir".to_owned()];
        arguments.push(path(&folder.path().join("data")));
        let (chain, key) = &target.server;
        let files = [("cert", chain), ("key", key), ("ca-cert", &target.ca_certificate)];
        for (name, file) in files {
            arguments.extend([format!("--registration-{name}-file"), path(file)]);
        }
        if let Some(rules) = rules {
            let file = folder.path().join("rules.yaml");
            fs::write(&file, rules)?;
            arguments.extend(["--registration-rules".to_owned(), path(&file)]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let own = Own::start(target, folder.path(), "", &arguments, OBJECTS).await?;
        Ok(Self { own, address, _folder: folder })
    }

    /// Tries a registration and checks the status.
    async fn attempt(&self, target: &Target, counts: &Counts, case: Case) -> Result<()> {
        let (from, namespace, service, account, expected) = case;
        let with = |(chain, key): &(PathBuf, PathBuf)| {
            Dialer::with_certificate(self.address, &target.ca_certificate, chain, key)
        };
        let dialer = match from {
            From::Stranger => with(&(target.client_certificate.clone(), target.client_key.clone()))?,
            From::Foreign => with(&target.foreign)?,
            From::Nobody => Dialer::unchecked(self.address)?,
        };
        let path = format!("/v1/namespaces/{namespace}/services/{service}/instances/{from:?}{account}");
        let place = r#""addresses":["192.0.2.1"],"ports":[{"number":8080}]"#;
        let request = json("PUT", &path, &format!(r#"{{{place},"serviceAccount":"{account}"}}"#));
        counts.sent(request.len());
        // HTTP/1 although ALPN negotiated HTTP/2: the server detects it by the first bytes.
        let status = ask(dialer.dial().await?, &request).await?;
        ensure!(status == expected, "{from:?} registers {namespace}/{service} as {account:?}: {status}");
        counts.status(status);
        Ok(())
    }
}

async fn rights(target: Arc<Target>, deadline: Deadline) -> Result<Tally> {
    let counts = Counts::new();
    let (plain, ruled) =
        tokio::try_join!(Registration::start(&target, None), Registration::start(&target, Some(RULES)))?;
    let all: Vec<_> = WITHOUT_RULES
        .map(|case| (&plain, case))
        .into_iter()
        .chain(WITH_RULES.map(|case| (&ruled, case)))
        .collect();
    for number in (0_usize..).take_while(|number| *number < all.len() || !deadline.passed()) {
        let (registration, case) = all.get(number % all.len()).context("there are some")?;
        registration.attempt(&target, &counts, *case).await?;
        tokio::time::sleep(REST).await;
    }
    let endpoints = ruled.own.page("/debug/endpointz?host=web.bench").await?;
    ensure!(endpoints.contains("192.0.2.1"), "an instance that is allowed is missing: {endpoints}");
    ensure!(!endpoints.contains("sa/stranger"), "another trust domain has an identity here: {endpoints}");
    Ok(counts.tally())
}
