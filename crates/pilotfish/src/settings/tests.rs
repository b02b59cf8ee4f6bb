use super::*;
use crate::cli::Cli;
use clap::{Command, CommandFactory};
use pilotfish_registry::{Input, LiveSource, RegistrySender, RegistryTable, RegistryType};
use std::collections::BTreeSet;
use std::pin::Pin;

/// A registry with a source of its own, which sends nothing.
static SILENT: RegistryType = RegistryType {
    name: "silent",
    provider: "silent",
    about: "nothing",
    address: "ADDRESS",
    options: &[],
    input: Input::Live(|settings| {
        settings.finish(&SILENT)?;
        Ok(Box::new(Silent))
    }),
};

struct Silent;

impl LiveSource for Silent {
    fn run(self: Box<Self>, _: RegistrySender) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }
}

fn files() -> ServeArgs {
    let sources = SourceArgs { paths: vec![".".into()], ..SourceArgs::default() };
    ServeArgs { sources, ..ServeArgs::default() }
}

#[test]
fn defaults_are_istiods() {
    let settings = files().check(RegistryTable::default()).unwrap();
    assert_eq!(settings.xds.address.to_string(), "127.0.0.1:15010");
    assert_eq!(settings.admin.address.to_string(), "127.0.0.1:15014");
    assert_eq!(&*settings.registries.settings.domain, "cluster.local");
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let args = ServeArgs {
        xds: XdsArgs {
            xds_address: Some("nowhere".into()),
            max_streams: Some("many".into()),
            drain_deadline: Some("-1s".into()),
            endpoint_window: Some("5ms,1ms".into()),
            ..XdsArgs::default()
        },
        registries: RegistriesArgs { registries: vec!["Eureka".into()], ..RegistriesArgs::default() },
        multi_cluster: MultiClusterArgs {
            multi_cluster_services: Some("some".into()),
            remote_cluster_timeout: Some("soon".into()),
            insecure_kubeconfig_options: vec!["exec".into(), "all".into()],
            ..MultiClusterArgs::default()
        },
        status: StatusArgs {
            write_status: Some("sometimes".into()),
            status_controllers: vec!["example.com/other".into()],
            ..StatusArgs::default()
        },
        auto_registration: AutoRegistrationArgs {
            workload_entries: Some("some".into()),
            workload_entry_address: Some("any".into()),
            ..AutoRegistrationArgs::default()
        },
        ..ServeArgs::default()
    };
    let mistakes = args.check(RegistryTable::default()).unwrap_err();
    assert_eq!(mistakes.lines.len(), 13, "{mistakes}");
    assert!(mistakes.to_string().starts_with("13 settings are wrong:\n  PATH: name at least one"));
    assert!(mistakes.to_string().contains("Kubernetes"), "the known registries are named");
}

#[test]
fn a_kubeconfig_implies_the_cluster() {
    let sources = SourceArgs { kubeconfig: Some("Cargo.toml".into()), ..SourceArgs::default() };
    let settings = ServeArgs { sources, ..ServeArgs::default() }.check(RegistryTable::default()).unwrap();
    assert_eq!(settings.sources.kubernetes.unwrap().kubeconfig, Some("Cargo.toml".into()));
}

#[test]
fn a_registry_with_a_source_of_its_own_needs_no_files() {
    let registry = vec!["silent/a=127.0.0.1:7000".into(), "silent/b=127.0.0.1:7001".into()];
    let registries = RegistriesArgs { registry, ..RegistriesArgs::default() };
    let table = crate::registries::table_with(&[&SILENT]);
    let settings = ServeArgs { registries, ..ServeArgs::default() }.check(table).unwrap();
    assert_eq!(settings.registries.live.len(), 2);
    assert!(!settings.sources.has_any());
}

#[test]
fn what_needs_a_cluster_says_so() {
    let mut args = files();
    args.multi_cluster.remote_kubeconfigs = Some(".".into());
    args.multi_cluster.export_services = true;
    args.multi_cluster.multi_cluster_services = Some("hosts".into());
    args.webhooks.webhook_address = Some("127.0.0.1:0".into());
    let mistakes = args.check(RegistryTable::default()).unwrap_err();
    assert_eq!(mistakes.lines.len(), 3, "{mistakes}");
    assert!(mistakes.lines.iter().all(|mistake| mistake.contains("--kubernetes")), "{mistakes}");
}

#[test]
fn a_flag_wins_over_the_file() {
    let mut args = ServeArgs::default();
    args.xds.xds_address = Some("127.0.0.1:9".into());
    args.registries.registries = vec!["Kubernetes".into()];
    let text = "xdsAddress: 127.0.0.1:1\nadminAddress: 127.0.0.1:2\npaths: [.]\ntrustNodes: true\nmaxStreams: 7\n\
                clusterId: 007\nregistries: [Kubernetes, ServiceEntry]\n";
    let settings = args.with_text(text).unwrap().check(RegistryTable::default()).unwrap();
    assert_eq!((settings.xds.address.port(), settings.admin.address.port()), (9, 2));
    assert!(settings.xds.trust_nodes);
    assert_eq!(settings.xds.max_streams, 7);
    assert_eq!(settings.registries.settings.cluster.to_string(), "007", "a text stays as it is written");
    assert_eq!(settings.registries.names, ["Kubernetes"]);
}

#[test]
fn what_other_machines_reach_needs_a_flag_that_says_so() {
    let refused = |set: &dyn Fn(&mut ServeArgs)| {
        let mut args = ServeArgs::default();
        args.registries.registries = vec!["Kubernetes".into()];
        args.sources.paths = vec![".".into()];
        set(&mut args);
        args.check(RegistryTable::default()).err().map(|errors| format!("{errors:?}"))
    };
    let any = || Some("0.0.0.0:15010".to_owned());
    assert_eq!(refused(&|args| args.xds.trust_nodes = true), None, "loopback is this machine");
    let plain = refused(&|args| args.xds.xds_address = any()).unwrap();
    assert!(plain.contains("--allow-plaintext-xds"), "{plain}");
    assert_eq!(
        refused(&|args| {
            args.xds.xds_address = any();
            args.xds.allow_plaintext_xds = true;
        }),
        None
    );
    let trusted = refused(&|args| {
        args.xds.xds_address = any();
        args.xds.allow_plaintext_xds = true;
        args.xds.trust_nodes = true;
    });
    assert!(trusted.unwrap().contains("--trust-nodes"), "no flag opens that");
}

#[test]
fn an_unknown_name_of_the_file_is_refused_with_the_likely_meant_one() {
    let errors = |text: &str| ServeArgs::default().with_text(text).unwrap_err();
    assert_eq!(errors("xdsAdress: x\n"), ["no setting \"xdsAdress\" (did you mean \"xdsAddress\"?)"]);
    assert_eq!(errors("xds-address: x\n"), ["no setting \"xds-address\" (did you mean \"xdsAddress\"?)"]);
    assert!(errors("qqq: x\n")[0].contains("as in xdsAddress"));
    assert_eq!(errors("qqq: x\nzzz: y\n").len(), 2, "each is reported");
    assert_eq!(errors("maxStreams: [1]\n").len(), 1, "a value of another type");
    assert!(errors("- a\n")[0].len() < 300, "no list of all names");
    assert!(ServeArgs::default().with_text("").is_ok());
    assert!(ServeArgs::default().with_text("# nothing\n").is_ok());
}

#[test]
fn a_settings_file_is_named_in_its_mistakes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "xdsAdress: x\n").unwrap();
    let args = ServeArgs { settings: Some(file.path().to_owned()), ..ServeArgs::default() };
    let mistakes = args.with_file().unwrap_err().to_string();
    assert!(mistakes.contains(&format!("--settings {}: no setting", file.path().display())), "{mistakes}");
    let absent = ServeArgs { settings: Some("/no/such/file".into()), ..ServeArgs::default() };
    assert!(absent.with_file().unwrap_err().to_string().contains("--settings /no/such/file: "));
}

/// Every name of the settings file, as it was when files with it may have been written.
const NAMES: &str = "adminAddress allocateAddresses allocationRanges caCertFiles clusterId configWindow domain drainDeadline \
                     endpointWindow exportServices injectionTemplate injectionValues injectionXdsAddress injectionXdsCa \
                     insecureKubeconfigOptions kubeconfig kubernetes maxRequestBytes maxStreams maxSubscriptions meshConfig \
                     meshNetworks multiClusterServices paths registries remoteClusterTimeout remoteKubeconfigs rootNamespace \
                     secureXdsAddress statusControllers tlsCertFile tlsKeyFile tokenAudiences trustNodes webhookAddress \
                     webhookService webhookUrl workloadEntries workloadEntryGracePeriod writeStatus xdsAddress";

#[test]
fn names_of_the_settings_file_stay() {
    let lists = [
        "caCertFiles",
        "injectionValues",
        "insecureKubeconfigOptions",
        "paths",
        "registries",
        "statusControllers",
        "tokenAudiences",
    ];
    let is_flag = |name: &str| ["exportServices", "kubernetes", "trustNodes"].contains(&name);
    for name in NAMES.split_whitespace() {
        let value = if lists.contains(&name) {
            "[a]"
        } else if is_flag(name) {
            "true"
        } else {
            "a"
        };
        let text = format!("{name}: {value}\n");
        assert!(ServeArgs::default().with_text(&text).is_ok(), "{name}");
    }
}

#[test]
fn help_has_every_setting_under_a_heading() {
    #[derive(clap::Parser)]
    struct Serve {
        #[command(flatten)]
        _args: ServeArgs,
    }
    let command = <Serve as clap::CommandFactory>::command();
    let is_own = |id: &str| ["paths", "settings", "help"].contains(&id);
    for argument in command.get_arguments().filter(|argument| !is_own(argument.get_id().as_str())) {
        assert!(argument.get_help_heading().is_some(), "{}", argument.get_id());
    }
}

/// As the page writes it.
fn bytes(count: usize) -> String {
    match (count >> 20, count >> 10) {
        (0, kib) => format!("{kib} KiB"),
        (mib, _) => format!("{mib} MiB"),
    }
}

#[test]
fn the_page_of_limits_says_the_defaults() {
    use pilotfish_xds::{Limit, NodeLimits, ServerConfig, StreamLimits};
    let (server, stream, node) = (ServerConfig::default(), StreamLimits::default(), NodeLimits::default());
    let default = |limit| match limit {
        Limit::RequestBytes => bytes(server.max_message),
        Limit::Subscriptions => stream.subscriptions.to_string(),
        Limit::SubscriptionBytes => bytes(stream.subscription_bytes),
        Limit::AllSubscriptionBytes => bytes(stream.all_subscription_bytes),
        Limit::UnidentifiedSubscriptionBytes => bytes(stream.unidentified_subscription_bytes),
        Limit::AddressSubscriptionBytes => bytes(stream.address_subscription_bytes),
        Limit::IdentitySubscriptionBytes => bytes(stream.identity_subscription_bytes),
        Limit::NodeBytes => bytes(node.bytes),
        Limit::AllNodeBytes => bytes(stream.all_node_bytes),
        Limit::UnidentifiedNodeBytes => bytes(stream.unidentified_node_bytes),
        Limit::AddressNodeBytes => bytes(stream.address_node_bytes),
        Limit::IdentityNodeBytes => bytes(stream.identity_node_bytes),
        Limit::NodeIdBytes => bytes(node.id_bytes),
        Limit::NodeValues => node.values.to_string(),
        Limit::NodeDepth => node.depth.to_string(),
        Limit::NodeAddresses => pilotfish_translate::MAX_ADDRESSES.to_string(),
        Limit::NodeLabels => pilotfish_translate::MAX_LABELS.to_string(),
        Limit::NodeClaims => pilotfish_control_plane::resources::MAX_NODE_CLAIMS.to_string(),
        Limit::IncompleteBytes => bytes(server.incomplete_bytes),
        Limit::AllIncompleteBytes => bytes(server.all_incomplete_bytes),
        Limit::AddressIncompleteBytes => bytes(server.address_incomplete_bytes),
        Limit::FirstBytes => bytes(server.first_bytes),
        Limit::Unidentified => server.max_unidentified.to_string(),
        Limit::UnidentifiedBytes => bytes(server.unidentified_bytes),
        Limit::AddressReviews => pilotfish_kube::token_review::ADDRESS_REVIEWS.to_string(),
        Limit::IdentityCertificates => crate::serve::ca::service::IDENTITY_CERTIFICATES.to_string(),
        Limit::SigningRequests => crate::serve::ca::signer::SIGNING_REQUESTS.to_string(),
        Limit::AddressCertificates => crate::serve::ca::service::ADDRESS_CERTIFICATES.to_string(),
        Limit::Calls => server.max_calls.to_string(),
        Limit::AllCalls => server.all_calls.to_string(),
        Limit::AddressCalls => server.address_calls.to_string(),
        Limit::IdentityCalls => server.identity_calls.to_string(),
        Limit::CallBytes => bytes(server.call_bytes),
        Limit::RequestsPerSecond => server.requests_per_second.to_string(),
        Limit::FramesPerSecond => server.frames_per_second.to_string(),
        Limit::Connections => server.max_connections.to_string(),
        Limit::AddressConnections => server.address_connections.to_string(),
        Limit::Streams => server.max_streams.to_string(),
        Limit::AddressStreams => server.address_streams.to_string(),
        Limit::IdentityStreams => server.identity_streams.to_string(),
    };
    let page = include_str!("../../../../docs/limits.md");
    for limit in Limit::ALL {
        let row = format!("| `{}` | {} |", limit.as_str(), default(limit));
        assert!(page.contains(&row), "no row {row:?}");
    }
}

#[test]
fn the_page_of_limits_says_those_that_have_no_name() {
    let server = pilotfish_xds::ServerConfig::default();
    let page = include_str!("../../../../docs/limits.md");
    for row in [
        format!("(HTTP/2) | {} |", server.connection_streams),
        format!("| Bytes of a stream's headers | {} |", bytes(server.max_headers as usize)),
        format!("| Time without a stream | {} s |", server.idle_timeout.as_secs()),
    ] {
        assert!(page.contains(&row), "no row {row:?}");
    }
}

#[test]
fn the_page_of_limits_says_those_of_configuration() {
    let page = include_str!("../../../../docs/limits.md");
    let conditions = ("virtual-service-conditions", pilotfish_config::networking::MAX_CONDITIONS);
    let regex = ("regex-bytes", pilotfish_config::MAX_REGEX_BYTES);
    let of_objects = pilotfish_config::OBJECT_LIMITS.map(|limit| (limit.name, limit.most));
    let of_proxies = pilotfish_translate::LIMITS;
    for (name, most) in [conditions, regex].into_iter().chain(of_objects).chain(of_proxies) {
        let most = if name.ends_with("-bytes") { bytes(most) } else { most.to_string() };
        let row = format!("| `{name}` | {most} |");
        assert!(page.contains(&row), "no row {row:?}");
    }
}

/// The limits of the admin server and the webhooks, as docs/limits.md writes them.
fn of_http() -> Vec<(&'static str, String)> {
    let (admin, webhooks) = (pilotfish_listener::Limits::PAGES, pilotfish_webhook::LIMITS);
    let seconds = |time: std::time::Duration| format!("{} s", time.as_secs());
    let both = |name, admin: String, webhooks: String| (name, format!("{admin}; webhooks {webhooks}"));
    let counts = |name, admin: usize, webhooks: usize| both(name, admin.to_string(), webhooks.to_string());
    let mut all = vec![
        counts("connections", admin.connections, webhooks.connections),
        counts("address-connections", admin.address_connections, webhooks.address_connections),
        counts("idle-connections", admin.idle_connections, webhooks.idle_connections),
        both("handshake-time", seconds(admin.handshake), seconds(webhooks.handshake)),
        both("idle-time", seconds(admin.idle), seconds(webhooks.idle)),
        both("request-time", seconds(admin.request), seconds(webhooks.request)),
        both("head-bytes", bytes(admin.head_bytes), bytes(webhooks.head_bytes)),
    ];
    let named = pilotfish_admin::NAMED_LIMITS.into_iter().chain(pilotfish_webhook::NAMED_LIMITS);
    all.extend(named.map(|(name, most)| match name.rsplit('-').next() {
        Some("bytes") => (name, bytes(most)),
        Some("time") => (name, format!("{most} s")),
        _ => (name, most.to_string()),
    }));
    all
}

#[test]
fn limits_of_the_admin_server_and_the_webhooks_are_those_of_the_page() {
    let page = include_str!("../../../../docs/limits.md");
    let (_, page) = page.split_once("## Of the webhooks and the admin server\n").expect("it has that part");
    let page = page.split("\n## ").next().unwrap_or_default();
    let named: Vec<(&str, &str)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .filter_map(|(name, rest)| Some((name, rest.split(" | ").next()?)))
        .collect();
    let expected = of_http();
    let mut expected: Vec<(&str, &str)> =
        expected.iter().map(|(name, most)| (*name, most.as_str())).collect();
    let mut named = named;
    expected.sort_unstable();
    named.sort_unstable();
    assert_eq!(named, expected, "every limit has a row, and every row a limit");
}

/// The ports in defaults of a command and of those below it.
fn ports(command: &Command, out: &mut BTreeSet<u16>) {
    let defaults = command.get_arguments().flat_map(clap::Arg::get_default_values);
    let texts = defaults.filter_map(|value| value.to_str());
    out.extend(texts.filter_map(|text| text.rsplit_once(':')?.1.parse::<u16>().ok()));
    command.get_subcommands().for_each(|below| ports(below, out));
}

#[test]
fn pages_of_the_sync_are_at_a_port_that_nothing_else_has_by_default() {
    let (mut own, mut others) = (BTreeSet::new(), BTreeSet::new());
    for command in Cli::command().get_subcommands() {
        ports(command, if command.get_name() == "sync" { &mut own } else { &mut others });
    }
    assert_eq!(own, BTreeSet::from([15018]));
    assert!(others.is_superset(&BTreeSet::from([15010, 15014, 15016])), "{others:?}");
    assert!(others.is_disjoint(&own), "{others:?}");
}

#[test]
fn environment_variables_are_named_after_their_flags() {
    let command = <ServeArgs as clap::Args>::augment_args(Command::new("serve"));
    let wrong: Vec<String> = command
        .get_arguments()
        .filter_map(|argument| {
            let (flag, variable) = (argument.get_long()?, argument.get_env()?.to_str()?);
            let expected = format!("PILOTFISH_{}", flag.to_uppercase().replace('-', "_"));
            (variable != expected).then(|| format!("--{flag}: {variable}"))
        })
        .collect();
    assert_eq!(wrong, Vec::<String>::new());
}
