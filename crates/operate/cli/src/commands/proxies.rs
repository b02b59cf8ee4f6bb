//! `pilotfish proxies`.

use super::shown::{Listed, and_more, good};
use crate::client::part;
use crate::error::CliError;
use crate::output::{Colour, Screen};
use crate::table::{Cell, Table};
use crate::time::about;
use clap::{Args, ValueEnum};
use pilotfish_api::causes;
use pilotfish_api::counted;
use pilotfish_api::v1::{Page, Proxy, ProxyCertificate, ProxyType, State};
use std::fmt::Write;
use std::process::ExitCode;

pub(super) const EXAMPLES: &str = "Examples:
  pilotfish proxies                          all that are connected
  pilotfish proxies web-0.shop               one of them, type by type, with what it refused in its
                                             own words
  pilotfish proxies --state rejected         those that refused something
  pilotfish proxies --watch                  again and again
  pilotfish proxies -o json | jq '.items[].name'";

/// Arguments of `pilotfish proxies`.
#[derive(Args, Clone, Debug)]
pub struct Proxies {
    /// A proxy: NAME.NAMESPACE, its node's id, or the beginning of its name
    name: Option<String>,
    /// Only proxies of a namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only proxies in a state
    #[arg(long, value_enum)]
    state: Option<StateFilter>,
    #[command(flatten)]
    list: Listed,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StateFilter {
    Synced,
    Pending,
    Rejected,
}

impl StateFilter {
    fn word(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Pending => "pending",
            Self::Rejected => "rejected",
        }
    }
}

impl Proxies {
    pub(super) async fn run(self) -> Result<ExitCode, CliError> {
        if let Some(name) = &self.name {
            return self.list.shown.one(&format!("proxies/{}", part(name)), &[], one).await;
        }
        let mut query = Vec::new();
        query.extend(self.namespace.as_deref().map(|namespace| ("namespace", namespace)));
        query.extend(self.state.map(|state| ("state", state.word())));
        self.list.run("proxies", &query, all, good).await
    }
}

/// Resource types with a column.
const COLUMNS: [&str; 4] = ["clusters", "endpoints", "listeners", "routes"];

fn all(page: &Page<Proxy>, screen: &Screen) -> String {
    if page.items.is_empty() {
        return format!("no proxy is connected{} that matches\n", to(&page.replica));
    }
    let mut table = Table::new(["proxy", "kind", "state"].into_iter().chain(COLUMNS).chain([
        "revision",
        "version",
        "connected",
    ]));
    for proxy in &page.items {
        let mut cells = vec![proxy.name.as_str().into(), proxy.kind.as_str().into(), state(proxy.state)];
        cells.extend(COLUMNS.iter().map(|name| column(proxy, name)));
        cells.extend(
            [proxy.revision.to_string(), proxy.version.clone(), proxy.connected_at.clone()].map(Cell::from),
        );
        table.row(cells);
    }
    let mut out = table.text(screen) + &and_more(page.items.len(), page.total);
    for proxy in &page.items {
        let refused = proxy.types.iter().filter_map(|ty| Some((&ty.name, ty.rejection.as_ref()?)));
        for (ty, rejection) in refused {
            let mut line =
                format!("{} refuses {ty} since {}: {}", proxy.name, rejection.at, rejection.reason);
            let made_by = causes(&rejection.made_by, |first, others| format!("{first} (or {others})"));
            if !made_by.is_empty() {
                line.push_str(&format!(", made by {made_by}"));
            }
            let _ = writeln!(out, "{}", screen.paint(&line, Colour::Bad));
        }
    }
    if !page.replica.is_empty() {
        let _ =
            writeln!(out, "{} connected{}; another replica may have others", page.total, to(&page.replica));
    }
    out
}

/// Suffix with the replica that the proxies are connected to.
fn to(replica: &str) -> String {
    if replica.is_empty() { String::new() } else { format!(" to {replica}") }
}

fn state(state: State) -> Cell {
    let colour = match state {
        State::Synced => Colour::Good,
        State::Pending => Colour::Doubtful,
        State::Rejected => Colour::Bad,
    };
    Cell::coloured(state.to_string(), colour)
}

/// Cell of a type: the number of resources if it is in sync, or else the state and its age.
fn column(proxy: &Proxy, name: &str) -> Cell {
    let Some(ty) = proxy.types.iter().find(|ty| ty.name == name) else { return Cell::from("") };
    match (ty.state, ty.lag_seconds) {
        (State::Synced, _) => ty.resources.to_string().into(),
        (State::Pending, lag) => {
            Cell::coloured(format!("pending {}", lag.map(about).unwrap_or_default()).trim(), Colour::Doubtful)
        }
        (State::Rejected, _) => Cell::coloured("rejected", Colour::Bad),
    }
}

fn one(proxy: &Proxy, screen: &Screen) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}  {}  revision {}",
        proxy.name,
        screen.paint(&proxy.state.to_string(), colour_of(proxy.state)),
        proxy.revision
    );
    let certificate = proxy.certificate.as_ref().map(certificate).unwrap_or_default();
    for (name, value) in [
        ("connection", &proxy.connection),
        ("kind", &proxy.kind),
        ("cluster", &proxy.cluster),
        ("version", &proxy.version),
        ("from", &proxy.address),
        ("connected", &proxy.connected_at),
        ("protocol", &proxy.protocol),
        ("identities", &proxy.identities.join(", ")),
        ("certificate", &certificate),
    ] {
        if !value.is_empty() {
            let _ = writeln!(out, "  {name:<11} {value}");
        }
    }
    let mut table = Table::new([
        "type",
        "state",
        "since",
        "lag",
        "resources",
        "subscribed",
        "revision",
        "view",
        "shared with",
    ]);
    for ty in &proxy.types {
        table.row(row(ty));
    }
    out.push('\n');
    out.push_str(&table.text(screen));
    for ty in &proxy.types {
        let Some(rejection) = &ty.rejection else { continue };
        let _ = writeln!(
            out,
            "\n{}",
            screen.paint(&format!("{} refused at {}", ty.name, rejection.at), Colour::Bad)
        );
        let _ = writeln!(out, "  {}", rejection.reason);
        for (what, names) in [("resources", &rejection.resources), ("made by", &rejection.made_by)] {
            if !names.is_empty() {
                let _ = writeln!(out, "  {what}: {}", names.join(", "));
            }
        }
    }
    out
}

/// Identity of a certificate with its expiry.
fn certificate(certificate: &ProxyCertificate) -> String {
    let ProxyCertificate { identity, expires, source } = certificate;
    let source = match source.as_str() {
        "sds" => "sent over SDS",
        "connection" => "of its connection",
        other => other,
    };
    format!("{identity} until {expires}, {source}")
}

fn colour_of(state: State) -> Colour {
    match state {
        State::Synced => Colour::Good,
        State::Pending => Colour::Doubtful,
        State::Rejected => Colour::Bad,
    }
}

fn row(ty: &ProxyType) -> [Cell; 9] {
    [
        ty.name.as_str().into(),
        state(ty.state),
        ty.since.as_str().into(),
        ty.lag_seconds.map(about).unwrap_or_default().into(),
        ty.resources.to_string().into(),
        ty.subscribed.map_or_else(|| "all".to_owned(), |count| count.to_string()).into(),
        ty.revision.to_string().into(),
        ty.view.map(|view| view.to_string()).unwrap_or_default().into(),
        ty.shared_with.map(|count| counted(count, "proxy")).unwrap_or_default().into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_api::v1::Rejection;

    fn proxy() -> Proxy {
        let rejection = Rejection {
            at: "2026-01-01T00:00:00Z".into(),
            reason: "no such filter".into(),
            resources: vec!["0.0.0.0_80".into()],
            made_by: vec!["EnvoyFilter shop/bad".into()],
            ..Rejection::default()
        };
        let listeners = ProxyType {
            name: "listeners".into(),
            state: State::Rejected,
            rejection: Some(rejection),
            ..ProxyType::default()
        };
        let clusters = ProxyType {
            name: "clusters".into(),
            resources: 12,
            view: Some(3),
            shared_with: Some(1),
            ..ProxyType::default()
        };
        let endpoints = ProxyType {
            name: "endpoints".into(),
            state: State::Pending,
            lag_seconds: Some(3.0),
            ..ProxyType::default()
        };
        Proxy {
            name: "web-0.shop".into(),
            kind: "sidecar".into(),
            state: State::Rejected,
            revision: 7,
            types: vec![clusters, endpoints, listeners],
            ..Proxy::default()
        }
    }

    #[test]
    fn a_list_has_a_line_for_each_and_says_what_is_refused() {
        let page = Page { items: vec![proxy()], total: 2, next: Some(1), replica: "pilotfish-0".into() };
        let text = all(&page, &Screen::plain());
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("PROXY")
                && lines[1].contains("rejected")
                && lines[1].contains("pending 3.0 s"),
            "{text}"
        );
        assert_eq!(lines[2], "... 1 more; --limit shows them, filters narrow it");
        assert_eq!(
            lines[3..],
            [
                "web-0.shop refuses listeners since 2026-01-01T00:00:00Z: no such filter, made by EnvoyFilter shop/bad",
                "2 connected to pilotfish-0; another replica may have others"
            ]
        );
    }

    #[test]
    fn one_proxy_is_shown_with_its_own_words() {
        let certificate = ProxyCertificate {
            identity: "spiffe://cluster.local/ns/shop/sa/web".into(),
            expires: "2026-01-02T00:00:00Z".into(),
            source: "sds".into(),
        };
        let text = one(&Proxy { certificate: Some(certificate), ..proxy() }, &Screen::plain());
        for part in [
            "  certificate spiffe://cluster.local/ns/shop/sa/web until 2026-01-02T00:00:00Z, sent over SDS\n",
            "web-0.shop  rejected  revision 7",
            "  no such filter\n",
            "  made by: EnvoyFilter shop/bad\n",
            "3     1 proxy\n",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }
}
