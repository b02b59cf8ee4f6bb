//! Warnings about environment variables that are probably misspelt settings.

use super::Cli;
use clap::CommandFactory;
use std::collections::BTreeSet;
use std::io::Write;

const PREFIX: &str = "PILOTFISH_";

/// Variables without a flag.
const MORE: [&str; 2] = ["PILOTFISH_ETCD_PASSWORD", "PILOTFISH_POLARIS_TOKEN"];

/// Warns on stderr of variables with Pilotfish's prefix that nothing reads.
pub(super) fn warn() {
    // Most environments have none, so flags are searched only if there is one.
    let set: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with(PREFIX))
        .collect();
    if set.is_empty() {
        return;
    }
    for warning in warnings(&set, &known(&Cli::command())) {
        // A warning is lost when stderr is closed.
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
}

/// Variables of all flags of all commands.
fn known(command: &clap::Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(clap::Arg::get_env);
    let mut all: BTreeSet<String> = own.filter_map(|name| name.to_str()).map(str::to_owned).collect();
    all.extend(MORE.map(str::to_owned));
    command.get_subcommands().for_each(|command| all.extend(known(command)));
    all
}

fn warnings(set: &[String], known: &BTreeSet<String>) -> Vec<String> {
    let unknown = set.iter().filter(|name| !known.contains(*name) && !is_of_kubernetes(name));
    let warning = |name: &String| {
        // Without the prefix, which all have in common and which would make everything near.
        let near = pilotfish_config::nearest(
            name.strip_prefix(PREFIX).unwrap_or_default(),
            known.iter().filter_map(|known| known.strip_prefix(PREFIX)),
        );
        let hint = near.map(|near| format!(" (did you mean \"{PREFIX}{near}\"?)")).unwrap_or_default();
        format!("{name:?} is set, and no setting has this name{hint}; it is ignored")
    };
    unknown.map(warning).collect()
}

/// Kubernetes sets variables for each Service of a Pod's namespace: `PILOTFISH_SERVICE_HOST` and
/// `PILOTFISH_PORT_15010_TCP_ADDR` for one that is named `pilotfish`.
fn is_of_kubernetes(name: &str) -> bool {
    let is_port = |rest: &str| rest.is_empty() || rest.starts_with('_');
    let ends = |part: &str| name.rsplit_once(part).is_some_and(|(_, rest)| is_port(rest));
    ends("_SERVICE_HOST")
        || ends("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.contains("_TCP")
        || name.contains("_UDP")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_variables_are_named_and_those_of_kubernetes_are_not() {
        let known = known(&Cli::command());
        for name in
            ["PILOTFISH_XDS_ADDRESS", "PILOTFISH_LOG", "PILOTFISH_ADMIN_ADDRESS", "PILOTFISH_POLARIS_TOKEN"]
        {
            assert!(known.contains(name), "{name} in {known:?}");
        }
        let set = [
            "PILOTFISH_XDS_ADRESS",
            "PILOTFISH_SOMETHING",
            "PILOTFISH_XDS_ADDRESS",
            "PILOTFISH_SERVICE_HOST",
            "PILOTFISH_SERVICE_PORT_GRPC_XDS",
            "PILOTFISH_PORT",
            "PILOTFISH_PORT_15010_TCP",
            "PILOTFISH_PORT_15010_TCP_ADDR",
        ];
        assert_eq!(
            warnings(&set.map(str::to_owned), &known),
            [
                "\"PILOTFISH_XDS_ADRESS\" is set, and no setting has this name (did you mean \"PILOTFISH_XDS_ADDRESS\"?); it is ignored",
                "\"PILOTFISH_SOMETHING\" is set, and no setting has this name; it is ignored",
            ]
        );
    }
}
