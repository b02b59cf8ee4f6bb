//! The second half of docs/configuration.md: every setting of `serve`, from the declarations of its flags.

use clap::{Arg, Command, CommandFactory};
use pilotfish::cli::Cli;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

/// Separates the prose of the page from the generated tables.
const MARK: &str = "<!-- The tables below are generated from the flags. -->\n";
/// Environment variable with which this test rewrites the page.
const WRITE: &str = "PILOTFISH_WRITE_CONFIGURATION";

#[test]
fn page_of_settings_agrees_with_the_flags() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&file).expect("docs/configuration.md exists");
    let (prose, tables) = text.split_once(MARK).expect("the page has its mark");
    let generated = tables_of(&serve());
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&file, format!("{prose}{MARK}{generated}")).expect("the page can be written");
        return;
    }
    let missing: Vec<&str> = generated.lines().filter(|line| !tables.contains(line)).collect();
    let outdated: Vec<&str> = tables.lines().filter(|line| !generated.contains(line)).collect();
    assert!(
        tables == generated,
        "docs/configuration.md is out of date; {WRITE}=1 rewrites it\nmissing: {missing:#?}\noutdated: {outdated:#?}"
    );
}

#[test]
fn every_setting_has_a_variable_and_a_description() {
    let (serve, mut variables) = (serve(), BTreeSet::new());
    for arg in serve.get_arguments().filter(|arg| arg.get_long().is_some() && !is_help(arg)) {
        let name = arg.get_id();
        assert!(arg.get_env().is_some(), "{name} has no environment variable");
        assert!(variables.insert(arg.get_env()), "{name} has the environment variable of another setting");
        assert!(arg.get_help().is_some(), "{name} has no description");
    }
}

fn serve() -> Command {
    let mut pilotfish = Cli::command();
    pilotfish.build();
    pilotfish.find_subcommand("serve").expect("there is a command `serve`").clone()
}

fn is_help(arg: &Arg) -> bool {
    arg.get_id() == "help"
}

fn tables_of(serve: &Command) -> String {
    let mut page = String::new();
    let mut heading = None;
    for arg in serve.get_arguments().filter(|arg| arg.get_long().is_some() && !is_help(arg)) {
        if page.is_empty() || arg.get_help_heading() != heading {
            heading = arg.get_help_heading();
            let title = heading.unwrap_or("File of settings");
            let _ = write!(page, "\n## {title}\n\n| Flag | Settings file | Meaning |\n|---|---|---|\n");
        }
        let _ = writeln!(page, "{}", row(arg));
    }
    page
}

/// A row of a table. The environment variable follows from the flag, as the page says.
fn row(arg: &Arg) -> String {
    let flag = arg.get_long().expect("only flags with a long name are listed");
    let value = arg
        .get_value_names()
        .filter(|_| arg.get_action().takes_values())
        .map_or_else(String::new, |names| format!(" {}", names.join(" ")));
    let default = match arg.get_default_values() {
        [] => String::new(),
        values => format!(
            " [default: {}]",
            values.iter().map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(", ")
        ),
    };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let cell = format!("{help}{default}").replace('\n', " ").replace('<', "&lt;");
    // Flags of every command, such as those of the log, are no settings of `serve`.
    let in_file = if arg.is_global_set() { String::new() } else { format!("`{}`", in_camel_case(flag)) };
    let cells = [format!("`--{flag}{value}`"), in_file, cell].map(|cell| cell.replace('|', "\\|"));
    format!("| {} |", cells.join(" | "))
}

fn in_camel_case(flag: &str) -> String {
    let mut words = flag.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(word.len().min(1));
        name + &initial.to_uppercase() + rest
    })
}
