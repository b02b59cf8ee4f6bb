//! `pilotfish --help`: commands in groups by purpose.

use super::Command;
use clap::Subcommand;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Commands of each group, in the order of their use.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run", &["demo", "serve", "register", "certificates", "sync"]),
    (
        "Look at a running control plane",
        &[
            "status",
            "top",
            "proxies",
            "services",
            "endpoints",
            "registries",
            "problems",
            "config",
            "why",
            "history",
            "memory",
            "profile",
        ],
    ),
    ("Change", &["validate", "plan", "compare", "wait", "log", "ca"]),
    ("Kubernetes", &["inject", "crds", "remote-secret", "istio-iptables"]),
    ("Tools", &["bootstrap", "record", "replay", "bench", "completion", "man", "version", "help"]),
];

/// Width of the page in columns.
const WIDTH: usize = 100;

/// Template of the help: `clap` has no headings for commands.
pub(super) fn template() -> String {
    let all = Command::augment_subcommands(clap::Command::new("pilotfish"));
    let mut abouts: BTreeMap<String, String> = all
        .get_subcommands()
        .map(|command| {
            (command.get_name().to_owned(), command.get_about().map(ToString::to_string).unwrap_or_default())
        })
        .collect();
    abouts.insert("help".to_owned(), "Print the help of a command".to_owned());
    let width = abouts.keys().map(String::len).max().unwrap_or_default();
    let mut page = String::from("{about}\n\n{usage-heading} {usage}\n");
    for (title, commands) in GROUPS {
        let _ = write!(page, "\n{title}:\n");
        for name in commands {
            let about = wrapped(abouts.get(*name).map_or("", String::as_str), WIDTH - width - 4, width + 4);
            let _ = writeln!(page, "  {name:width$}  {about}");
        }
    }
    page + "\nOptions:\n{options}{after-help}"
}

/// Breaks a text into lines of so many columns; all but the first are indented.
fn wrapped(text: &str, columns: usize, indent: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        if column > 0 && column + 1 + word.len() > columns {
            let _ = write!(out, "\n{:indent$}", "");
            column = 0;
        }
        if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.len();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::CommandFactory;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_is_in_one_group() {
        let of_groups: Vec<&str> = GROUPS.iter().flat_map(|(_, commands)| commands.iter().copied()).collect();
        let command = Cli::command();
        let all: BTreeSet<&str> = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        let grouped: BTreeSet<&str> = of_groups.iter().copied().filter(|name| *name != "help").collect();
        assert_eq!((grouped, of_groups.len()), (all.clone(), all.len() + 1));
    }

    #[test]
    fn help_has_each_group_with_its_commands_in_the_width_of_the_page() {
        let page = Cli::command().render_long_help().to_string();
        let mut rest = page.as_str();
        for (title, commands) in GROUPS {
            rest = rest.split_once(&format!("\n{title}:\n")).unwrap_or_else(|| panic!("{title} in {page}")).1;
            for name in commands {
                rest = rest.split_once(&format!("  {name} ")).unwrap_or_else(|| panic!("{name} in {page}")).1;
            }
        }
        assert!(page.lines().all(|line| line.chars().count() <= WIDTH), "{page}");
        assert!(rest.contains("\nExamples:\n") && rest.contains("--log"), "{page}");
    }

    #[test]
    fn examples_of_all_commands_fit_into_the_page() {
        fn check(command: &clap::Command, path: &str, wide: &mut Vec<String>) {
            let path = format!("{path} {}", command.get_name());
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            wide.extend(
                text.lines()
                    .filter(|line| line.chars().count() > WIDTH)
                    .map(|line| format!("{path}: {line}")),
            );
            command.get_subcommands().for_each(|command| check(command, &path, wide));
        }
        let mut wide = Vec::new();
        check(&Cli::command(), "", &mut wide);
        assert!(wide.is_empty(), "{wide:#?}");
    }

    #[test]
    fn texts_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 8, 2), "one two\n  three");
        assert_eq!(wrapped("one", 8, 2), "one");
        assert_eq!(wrapped("", 8, 2), "");
    }
}
